"""The checks, a file per subject."""
