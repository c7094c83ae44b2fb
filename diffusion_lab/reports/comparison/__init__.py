"""Which runs are compared, and the comparison as a table: groups, rows, verdicts, cells and sentences."""
