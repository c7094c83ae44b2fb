"""Everything that is measured, with its goal beside it: `make bench`, or `make bench ONLY=training_step`.

Each benchmark of `lines/` runs in a fresh process of its own, one after the other, with one thread unless it says
otherwise. A whole run writes its table into benchmarks/README.md; a run of some benchmarks puts its part in the place
of the old one, if the table there is of the same machine and versions. A benchmark that fails says so in the table, and
the exit code is 1.
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
        print("\nits part of benchmarks/README.md is written anew")
    else:
        print("\nbenchmarks/README.md stays: its table is of another machine or other versions")
    return int(any(result.error for result in results))


if __name__ == "__main__":
    sys.exit(main())
