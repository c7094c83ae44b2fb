"""`make faults`: whole runs are killed, stopped, damaged, starved and misconfigured, and must not mind.

A campaign that can be repeated, not a test: pytest collects nothing here. `parts/` has one file per family of faults;
each gives cases, which run in processes of their own, and one row of the table in docs/faults.md. Every random choice
is a function of the case's name; only the moment at which a signal arrives depends on the machine.
"""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # before anything imports torch: its pool of threads would not survive a fork
