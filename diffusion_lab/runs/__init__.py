"""The run folder: file names, and writing, cutting back, locking, finding and reading its files. Without torch."""
