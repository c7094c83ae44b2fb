"""One file per plot of growth."""
