"""All benchmarks with their goals: `make bench`, or `make bench ONLY=training_step`.

The benchmarks of `lines/` run one after the other, each in a new process, with one thread unless it states otherwise. A
full run writes its table to benchmarks/README.md; a run of some benchmarks replaces or adds their sections, if the
table is of the same machine and versions. A benchmark that fails is marked in the table, and the exit code is 1.
"""

from __future__ import annotations

import sys
import time

from benchmarks.measured import chosen, measure, names
from benchmarks.table import heading, section, update, write


def main() -> int:
    only = chosen("benchmarks", __doc__ or "", names())
    start = time.perf_counter()
    results = [measure(name) for name in only or names()]
    minutes = (time.perf_counter() - start) / 60
    text = "\n\n".join([heading(minutes), *(section(result) for result in results)])
    print("\n" + text)
    if not only:
        write(text)
        print("\nwritten to benchmarks/README.md")
    elif all([update(result) for result in results if not result.error]):
        print("\nupdated in benchmarks/README.md")
    else:
        print("\nbenchmarks/README.md is unchanged: its table is of another machine or other versions")
    return int(any(result.error for result in results))


if __name__ == "__main__":
    sys.exit(main())
