"""A file per family of faults: its docstring's first line is its row's name, `cases(quick)` gives its cases."""
