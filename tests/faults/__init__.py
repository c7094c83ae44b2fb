"""`make faults`: whole runs are killed, stopped, damaged, starved and misconfigured, and must recover.

A repeatable campaign, which pytest does not collect. `parts/` has one file per kind of fault, with cases that run in
separate processes and one row of the table in docs/faults.md. Every random choice
is a function of the case's name; only the moment at which a signal arrives depends on the machine.
"""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # before torch is imported: its thread pool would not survive a fork
