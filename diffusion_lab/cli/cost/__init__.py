"""The parts of `dry_run=true`: what is counted, what is tried here, what is taken for a GPU elsewhere."""
