"""The files of a folder, and which of them a command is to run."""

from __future__ import annotations

import argparse
import os
import pkgutil
from collections.abc import Sequence
from types import ModuleType


def files(package: ModuleType) -> list[str]:
    """Names of the modules that a package's folder has, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name != "__main__")


def chosen(command: str, about: str, names: Sequence[str]) -> list[str]:
    """Names that were typed after `python -m COMMAND`; empty for all. Its children will have one thread each.

    Args:
        command: the module that is run.
        about: its docstring, whose first line `--help` shows.
        names: what may be typed.

    Raises:
        SystemExit: with code 2 and a sentence, for a name that is none of them.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=about.split("\n")[0])
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all by default")
    only = parser.parse_args().only
    unknown = [name for name in only if name not in names]
    if unknown:
        parser.error(f"{unknown[0]!r} must be one of {', '.join(names)}")
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"  # before any child imports torch or NumPy
    return only
