"""One file per plot of growth, see `benchmarks.growth`."""
