"""One file per benchmark, see `benchmarks.table`."""
