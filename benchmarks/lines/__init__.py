"""One file per benchmark, see `benchmarks.line`."""
