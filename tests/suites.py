"""The suites of the tests: `python -m tests.suites [NAME ...]`, by default what CI runs.

    quick       everything that is neither slow nor of another suite, in another order each time
    slow        whole runs, kills, two processes
    pages       what the pages, the notebook and the wheel promise is done, every preset and table of conf may run, and
                every job of a table has the paper's settings; by default only where docs, conf, README.md,
                pyproject.toml or the settings of experiments are not those with which it last passed, as git says
    learning    trainings that show that a network learns; after changes of diffusion, networks, solvers or training
    exhaustive  every composition, every network at full size, and second cases of slow tests; after changes of conf or
                networks, and before a release

Every test is in one suite. Quick and slow run as one, which imports and collects once. A suite whose tests fail writes
the generated pages that are stale. `python -m tests.suites pages` records the trees with which it passed in
pages_seen.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
SEEN = ROOT / "tests" / "pages_seen.json"
SETTINGS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("experiments/*/settings.yaml"))
OF_PAGES = ("README.md", "conf", "docs", *SETTINGS, "pyproject.toml")


class Suite(NamedTuple):
    """Which tests, by their marks; pytest's other options; what writes the stale pages and figures that they name."""

    marks: str
    options: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()


PAGES = ("experiments.option_pages", "experiments.claims")
ALL_PAGES = ("experiments.option_figures", *PAGES, "experiments.cells")
SUITES = {
    "quick": Suite("not (slow or pages or learning or exhaustive)", ("--random-order",), PAGES),
    "slow": Suite("slow and not (pages or learning or exhaustive)", ("--durations=15",)),
    "pages": Suite("pages and not (learning or exhaustive)", (), ALL_PAGES),
    "learning": Suite("learning and not exhaustive", ("--durations=0",)),
    "exhaustive": Suite("exhaustive"),
}
ALWAYS = ("quick", "slow")


def trees() -> dict[str, str] | None:
    """Path -> its hash in the commit that is checked out; None where a file below them is changed, or without git."""
    try:
        if _git("status", "--porcelain", "--", *OF_PAGES):
            return None
        return {path: _git("rev-parse", f"HEAD:{path}") for path in OF_PAGES}
    except (OSError, subprocess.CalledProcessError):
        return None


def pages_are_seen() -> bool:
    """Whether the pages' suite has passed with these files."""
    return SEEN.is_file() and trees() == json.loads(SEEN.read_text())


def run(*names: str) -> int:
    """Run suites in one pytest on two processes; its exit code. Where tests fail, pages that are stale are written."""
    suites = [SUITES[name] for name in names]
    marks = " or ".join(f"({suite.marks})" for suite in suites)
    options = [option for suite in suites for option in suite.options]
    command = [sys.executable, "-m", "pytest", "-m", marks, "-n", "2", "--dist", "worksteal", *options]
    print(f"suites {' '.join(names)}: {' '.join(command[1:])}", flush=True)
    code = subprocess.run(command, cwd=ROOT, env=surroundings()).returncode
    if code == pytest.ExitCode.TESTS_FAILED and write_stale(suites):
        print(f"Stale pages were written: read them, commit them, and run `python -m tests.suites {' '.join(names)}`.")
    return code


def surroundings() -> dict[str, str]:
    """The environment of the tests, in which each module is compiled once, as images that set
    PYTHONDONTWRITEBYTECODE keep each process from: torch and Lightning take it twice as long as their import."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    forbidden = kept.keys() != os.environ.keys()
    return ({"PYTHONPYCACHEPREFIX": str(ROOT / ".pytest_cache" / "bytecode")} if forbidden else {}) | kept


def write_stale(suites: list[Suite]) -> bool:
    """Write the stale pages of the suites, each with a line that names it; whether there were some."""
    due = [module for module in ALL_PAGES if any(module in suite.writers for suite in suites)]
    commands = [[sys.executable, "-m", module] for module in due]
    said = "".join(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout for command in commands)
    print(said, end="", flush=True)
    return bool(said)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", nargs="*", choices=[[], *SUITES], metavar="NAME", help=f"of {', '.join(SUITES)}")
    typed = parser.parse_args(words).name
    names = typed or [*ALWAYS, *([] if pages_are_seen() else ["pages"])]
    before = trees()
    together = [name for name in names if name in ALWAYS]
    for group in filter(None, [together, *([name] for name in names if name not in ALWAYS)]):
        if code := run(*group):
            return code
    if "pages" in typed and before is not None and before == trees():
        SEEN.write_text(json.dumps(before, indent=1) + "\n")
    for name in SUITES.keys() - set(names) if not typed else ():
        reason = ": its files are those with which it passed" if name == "pages" else ""
        print(f"not run: suite {name}{reason} (make test-{name})")
    return 0


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
