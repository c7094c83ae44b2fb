"""`python -m tests.mutants [WORD]`: try out every mutation, or those whose number contains WORD.

The tree is copied once and its tests are run unchanged first: a test that fails anyway would prove nothing. Then each
mutation is applied, the tests that it names are run, and, where they pass, the whole quick suite. Exit code 1 if a
mutation survives, 2 if one cannot be tried: its text does not stand exactly once, or the tests break, not fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.suites import SUITES

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("diffusion_lab", "hydra_plugins", "conf", "tests", "experiments", "benchmarks", "docs")
LIBRARIES = ("torch", "lightning.pytorch", "torch_fidelity", "scipy.stats", "hydra", "sklearn", "pytest")
OPTIONS = ("-q", "-x", "-m", SUITES["quick"].marks, "-p", "no:cacheprovider")
PASSED, FAILED = 0, 1  # pytest's exit codes; the others say that it could not test


def fault(mutant: Mutant, root: Path = ROOT) -> str:
    """Why a mutation cannot be applied; empty if it can."""
    count = (root / mutant.file).read_text().count(mutant.old) if (root / mutant.file).is_file() else 0
    if count != 1:
        return f"{mutant.number}: {mutant.old!r} must stand once in {mutant.file}, and stands {count} times"
    if "\n" in mutant.old + mutant.new or mutant.old == mutant.new:
        return f"{mutant.number}: must change one line"
    missing = [path for path in mutant.tests if not (root / path).exists()]
    return f"{mutant.number}: no tests {missing}" if missing or not mutant.tests else ""


def quick(tree: Path, tests: Iterable[str]) -> int:
    """pytest's exit code for the quick tests in a copy of the tree; it stops at the first failure."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *tests]
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and they take seconds to import
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True).returncode


def quick_warm(tree: Path, tests: Iterable[str]) -> int:
    """The same in a fork of this process, which has imported the libraries: that takes longer than most tests."""
    for name in LIBRARIES:
        import_module(name)
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = -1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nothing, descriptor)
        os.chdir(tree)
        os.environ |= {"PYTHONPATH": str(tree), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        sys.dont_write_bytecode = True
        sys.path[:] = [str(tree), *(path for path in sys.path if path and Path(path) != ROOT)]
        for name in [name for name in sys.modules if name.partition(".")[0] in COPIED]:
            del sys.modules[name]  # the copy's own are to be imported
        import pytest

        code = int(pytest.main([*OPTIONS, *tests]))
    finally:
        os._exit(code)


def verdict(tree: Path, mutant: Mutant) -> str:
    """`caught`, `caught by the whole suite`, `SURVIVED`, or `BROKEN` with pytest's code. The file is put back."""
    path = tree / mutant.file
    before = path.read_text()
    path.write_text(before.replace(mutant.old, mutant.new))
    try:
        tries = ((quick_warm, mutant.tests, "caught"), (quick, ("tests",), "caught by the whole suite"))
        for run, tests, word in tries:
            code = run(tree, tests)
            if code != PASSED:
                return word if code == FAILED else f"BROKEN (pytest's exit code {code})"
        return "SURVIVED"
    finally:
        path.write_text(before)


def copied(folder: Path) -> Path:
    """The tree in `folder`, without what is not needed to test it."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy2(path, folder / path.name)
    return folder


def main(words: Sequence[str]) -> int:
    """Print a line per mutation."""
    chosen = [mutant for mutant in MUTANTS if all(word in mutant.number for word in words)]
    faults = [line for line in map(fault, chosen) if line] if chosen else [f"no mutation is called {list(words)}"]
    if faults:
        print("\n".join(faults))
        return 2
    with TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        if code := quick_warm(tree, sorted({path for mutant in chosen for path in mutant.tests})):
            print(f"the tests must pass without a mutation; pytest's exit code is {code}")
            return 2
        found = []
        for mutant in chosen:
            start = time.monotonic()
            found.append(verdict(tree, mutant))
            print(f"{found[-1]:<26} {time.monotonic() - start:5.0f} s  {mutant.number}  ({mutant.file})", flush=True)
    caught = sum(word.startswith("caught") for word in found)
    print(f"{caught} of {len(found)} mutations were noticed")
    return 2 if any(word.startswith("BROKEN") for word in found) else int(caught < len(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
