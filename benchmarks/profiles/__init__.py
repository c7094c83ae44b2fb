"""What the time goes into, where a goal is missed.

A profile is one file here. Its docstring says what is taken apart and how, its first sentence is the title, and

    def rows() -> Iterator[tuple[str, ...]]

gives the heading of its table and then its rows. Nothing else has to know of it: `python -m benchmarks.profiles` finds
the file.
"""
