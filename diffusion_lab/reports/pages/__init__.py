"""The report as a page, on a terminal and in files."""
