"""The campaign: `make faults`, or `python -m tests.faults PART ...` for some parts.

A full campaign writes its table to docs/faults.md. Results are kept in runs/faults, so that the same command continues
after an interruption; it starts again if the code has changed, or with --again. The exit code is 1 if a case failed;
the folder of such a case is kept.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import shutil
import sys
import time
from pathlib import Path

import tests.faults.parts
from tests.faults import kept, pool, table
from tests.faults.case import Case, Outcome, total
from tests.faults.preload import preload


def names() -> list[str]:
    """The files of `parts/`, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(tests.faults.parts.__path__))


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The parsed arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("only", nargs="*", metavar="PART", help=f"of {', '.join(names())}; all by default")
    parser.add_argument("--quick", action="store_true", help="a few cases of each part, a few minutes; writes no table")
    parser.add_argument("--case", metavar="TEXT", help="only cases whose name contains this text; keeps no results")
    parser.add_argument("--again", action="store_true", help="discard kept results")
    parser.add_argument("--jobs", type=int, default=min(2, len(os.sched_getaffinity(0))), help="cases at a time")
    typed = parser.parse_args(words)
    for name in typed.only:
        if name not in names():
            parser.error(f"{name!r} must be one of {', '.join(names())}")
    return typed


def main() -> int:
    typed = arguments()
    folder = kept.ROOT / "runs" / "faults" / ("case" if typed.case else "quick" if typed.quick else "full")
    preload()
    start, code, rows = time.monotonic(), kept.fingerprint(), []
    for name in typed.only or names():
        rows.append(_part(name, typed, folder, code))
        print(rows[-1].line(), flush=True)
    print("\n" + table.table(rows))
    if not (typed.only or typed.quick or typed.case):
        table.write(rows)
        print("\nwritten to docs/faults.md")
    print(f"\n{(time.monotonic() - start) / 60:.0f} minutes")
    return int(any(row.outcome.wrong for row in rows))


def _part(name: str, typed: argparse.Namespace, folder: Path, code: str) -> table.Row:
    module = importlib.import_module(f"tests.faults.parts.{name}")
    cases: list[Case] = [case for case in module.cases(typed.quick) if not typed.case or typed.case in case.name]
    results = kept.Kept(folder / f"{name}.jsonl", code)
    if typed.again or typed.case:
        results.forget()
    left = [case for case in cases if case.name not in results.outcomes]
    print(f"\n{name}: {len(cases)} cases" + (f", {len(cases) - len(left)} kept" if len(left) < len(cases) else ""))

    def ended(case: Case, outcome: Outcome) -> None:
        results.add(case, outcome)
        what = ", ".join(f"{count} {thing}" for thing, count in outcome.counts.items() if count)
        print(f"  {len(results.outcomes)}/{len(cases)} {case.name}: {what} ({outcome.seconds:.0f} s)", flush=True)
        for text in outcome.wrong:
            print(f"    WRONG: {text}", flush=True)
        if outcome.wrong:
            print(f"    folder {folder / name / case.folder}", flush=True)
            print(f"    again: python -m tests.faults {name} --case '{case.name}'", flush=True)

    begin = time.monotonic()
    if left:
        pool.run(left, folder / name, typed.jobs, ended)
    outcome = total(results.outcomes[case.name] for case in cases)
    if not outcome.wrong:
        shutil.rmtree(folder / name, ignore_errors=True)  # only folders that cases share are left
    print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    return table.Row(name, (module.__doc__ or name).split("\n")[0].rstrip("."), outcome)


if __name__ == "__main__":
    sys.exit(main())
