"""Two groups of runs that are compared: in what they differ, and how many times faster one of them is."""
