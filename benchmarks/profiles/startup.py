"""A misspelt setting, from the start of Python to its answer.

`diffusion-lab train max_stepz=3` under cProfile, in a process of its own: the parts with all that they call, and below
them the packages whose own functions run. Hydra composes the configuration twice: once to learn which mode it names,
where it swallows every error, and once to run it.
"""

from __future__ import annotations

import pstats
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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
    "first composition": ("hydra/_internal/hydra.py", "get_mode"),
    "second composition": ("hydra/_internal/hydra.py", "run"),
}
PACKAGES = ("omegaconf", "yaml", "antlr4", "hydra", "diffusion_lab")


def rows() -> Iterator[tuple[str, ...]]:
    stats = profiled().stats  # type: ignore[attr-defined]
    whole = sum(own for _, _, own, _, _ in stats.values())
    yield "part", "ms", "share"
    for name, (file, function) in PARTS.items():
        spent = sum(value[3] for key, value in stats.items() if key[0].endswith(file) and key[2] == function)
        yield _row(name, spent, whole)
    packages: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in stats.items():
        packages[next((name for name in PACKAGES if name in Path(file).parts), "Python's own")] += own
    for name, spent in packages.most_common():
        yield _row(f"in all, functions of {name}", spent, whole)
    yield _row("all", whole, whole)


def _row(name: str, seconds: float, whole: float) -> tuple[str, str, str]:
    return name, f"{1e3 * seconds:.0f}", f"{100 * seconds / whole:.0f} %"


def profiled() -> pstats.Stats:
    """Of the command."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "profile")
        command = [sys.executable, "-c", COMMAND.replace("FILE", repr(str(file)))]
        subprocess.run(command, cwd=folder, check=False, capture_output=True)
        return pstats.Stats(str(file))
