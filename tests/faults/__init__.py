"""`make faults`: whole runs are killed, stopped, damaged, starved and misconfigured, and must not mind.

A campaign that can be repeated, not a test: pytest collects nothing here. `parts/` has one file per family of faults;
each gives cases, which run in processes of their own, and one row of the table in docs/faults.md. Every random choice
is a function of the case's name; only the moment at which a signal arrives depends on the machine.
"""
