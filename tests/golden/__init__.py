"""What must not change: twelve small trainings, and the names and hashes of every preset.

`runs.json` and `compositions.json` were written by `python -m tests.golden`; `test_golden.py` compares them with what
the code does now. A change that is meant is made by writing them anew: the program says what became different, which
belongs into the commit's message.
"""
