"""Do the quick tests notice when a number that a report shows is wrong? `make mutants` tries it out.

`catalogue.py` lists mutations of one line each. `python -m tests.mutants` applies them one by one to a copy of the tree
and runs the quick tests that should notice; each must make one fail.
"""
