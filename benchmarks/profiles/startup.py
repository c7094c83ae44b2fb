"""A misspelt setting, from the start of Python to the error message.

`diffusion-lab train max_stepz=3` under cProfile, in a new process: the parts with everything that they call, and below
them the own time of each package. Hydra composes the configuration once: `cli/single.py` leaves out the one that would
only read its mode.
"""

from __future__ import annotations

import pstats
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from benchmarks.kinds import functions

COMMAND = """
import cProfile, sys
watch = cProfile.Profile()
watch.enable()
from diffusion_lab.cli.main import main
sys.argv = ["diffusion-lab", "train", "max_stepz=3"]
try:
    main()
finally:
    watch.disable()
    watch.dump_stats(FILE)
"""
PARTS = {
    "Hydra and OmegaConf are imported": ("diffusion_lab/cli/app.py", "<module>"),
    "the configuration is composed": ("hydra/_internal/hydra.py", "run"),
}
PACKAGES = ("omegaconf", "yaml", "antlr4", "hydra", "diffusion_lab")


def rows() -> Iterator[tuple[str, ...]]:
    profile = list(functions(profiled()))
    whole = sum(function.own for function in profile)
    yield "part", "ms", "share"
    for part, (file, name) in PARTS.items():
        spent = sum(function.whole for function in profile if function.file.endswith(file) and function.name == name)
        yield _row(part, spent, whole)
    packages: dict[str, float] = defaultdict(float)
    for function in profile:
        package = next((name for name in PACKAGES if name in Path(function.file).parts), "Python's own")
        packages[package] += function.own
    for name, spent in sorted(packages.items(), key=itemgetter(1), reverse=True):
        yield _row(f"in all, functions of {name}", spent, whole)
    yield _row("all", whole, whole)


def _row(name: str, seconds: float, whole: float) -> tuple[str, str, str]:
    return name, f"{1e3 * seconds:.0f}", f"{100 * seconds / whole:.0f} %"


def profiled() -> pstats.Stats:
    """The profile of the command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "profile")
        command = [sys.executable, "-c", COMMAND.replace("FILE", repr(str(file)))]
        subprocess.run(command, cwd=folder, check=False, capture_output=True)
        return pstats.Stats(str(file))
