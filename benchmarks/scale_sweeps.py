"""Sweeps of 4 to 200 jobs: CPU time of a job beyond its own work, in all processes of the sweep.

Jobs of the digits that train for one step (`lines.sweep`): what a sweep takes, less what Lightning's fit
takes in its jobs, less the same of a sweep of one job, per further job. An exponent of 0 is a cost per job that does
not depend on how many there are.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator

from benchmarks.lines.sweep import beyond_work
from benchmarks.paired import Ratio
from benchmarks.table import Line, at_most

JOBS = (4, 50, 200)


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        beyond_work(folder, 1)  # what the first command reads from disk
        one = beyond_work(folder, 1)
        each = {jobs: (beyond_work(folder, jobs) - one) / (jobs - 1) for jobs in JOBS}
    for jobs, seconds in each.items():
        yield Line(f"a sweep of {jobs} jobs: overhead of a job", Ratio.of([seconds]), at_most(0.3), "s of CPU")
    exponent = math.log(each[JOBS[-1]] / each[JOBS[0]]) / math.log(JOBS[-1] / JOBS[0])
    yield Line("exponent of the overhead of a job in their number", Ratio.of([exponent]), at_most(0.2))


if __name__ == "__main__":
    for line in lines():
        print(line)
