"""Commands now over what they took before the work on scale, in turn on one machine.

The revision before is unpacked from git into a folder of its own, and both run in the same environment, each with its
own cache and after one round that is not measured. A line is the CPU time of whole commands with all their processes,
now over before: short commands; a training of one step on a folder of 10,000 images that an earlier one has seen; a
report of 96 runs of 24 methods, without and with what an earlier report leaves; and what each of eight further jobs of
one step adds to a sweep, its own work included. Without the revision, in a copy that is no clone, there are no lines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.commands import spend
from benchmarks.many_runs import write_runs
from benchmarks.paired import Ratio, ratio
from benchmarks.scale_images import drawn_folder
from benchmarks.table import Line, at_most

REVISION = "24861922"  # the last one before images were decoded once
HERE = Path(__file__).resolve().parents[1]
ROUNDS, IMAGES, METHODS, JOBS = 3, 10_000, 24, 8
GOALS = {"train": 0.6, "sample": 0.6, "evaluate": 0.6, "report": 0.6}
SHORT = ("base=ddpm", "max_steps=1", "metrics=none", "~callbacks.generation")


def lines() -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        if not _unpacked(top / "before"):
            return
        images = drawn_folder(top / "images", IMAGES)
        write_runs(top / "many", METHODS)
        sides = {"now": _commands(top, HERE, images), "before": _commands(top, top / "before", images)}
        spent: dict[str, dict[str, list[float]]] = {}
        for _ in range(1 + ROUNDS):
            for side, commands in sides.items():
                for name, seconds in commands.items():
                    spent.setdefault(name, {}).setdefault(side, []).append(seconds())
    for name, seconds_of in spent.items():
        now, before = (seconds_of[side][1:] for side in ("now", "before"))
        note = f"{Ratio.of(now)} s, before {Ratio.of(before)} s"
        goal = at_most(GOALS[name]) if name in GOALS else None
        yield Line(f"{name}: now over before", ratio(now, before), goal, note=note)


def _unpacked(place: Path) -> bool:
    """Whether the revision's package is in the folder now."""
    place.mkdir()
    parts = ["diffusion_lab", "hydra_plugins", "conf"]
    made = subprocess.run(["git", "archive", "--format=tar", REVISION, *parts], cwd=HERE, capture_output=True)
    return not made.returncode and not subprocess.run(["tar", "-x"], cwd=place, input=made.stdout).returncode


def _commands(top: Path, code: Path, images: Path) -> dict[str, Callable[[], float]]:
    """Name -> what runs it with this code and gives its CPU seconds."""
    place = top / f"of-{code.name}"
    place.mkdir()
    run = str(place / "runs" / "run")

    def cpu(*words: str, cache: str = "cache") -> float:
        paths = os.pathsep.join(map(str, (code, HERE)))
        return spend(words, str(place), PYTHONPATH=paths, DIFFUSION_LAB_CACHE=str(place / cache)).cpu

    def train(name: str, *words: str) -> float:
        shutil.rmtree(place / "runs" / name, ignore_errors=True)
        return cpu("train", *SHORT, *words, f"hydra.run.dir={place / 'runs' / name}")

    def sweep(jobs: int) -> float:
        shutil.rmtree(place / "runs" / "sweep", ignore_errors=True)
        return cpu("train", "-m", *SHORT, f"seed=range({jobs})", "name=sweep")

    def new_report() -> float:
        for path in (top / "many").glob("*/*digest*"):
            path.unlink()
        shutil.rmtree(place / "new", ignore_errors=True)
        return cpu("report", str(top / "many"), cache="new")

    folder = ("dataset=image_folder", f"dataset.source.root={images}", "dataset.source.image_size=32")
    return {
        "train": lambda: train("run"),
        "sample": lambda: cpu("sample", f"run={run}", "seeds=0", "solver=ddim", "solver.steps=1"),
        "evaluate": lambda: cpu("evaluate", f"run={run}", "metrics.num_samples=128", "solver=ddim", "solver.steps=1"),
        "report": lambda: cpu("report", run),
        f"train on {IMAGES:,} images": lambda: train("images", *folder),
        f"report of {4 * METHODS} runs": new_report,
        f"report of {4 * METHODS} runs, again": lambda: cpu("report", str(top / "many"), cache="new"),
        "a further job of a sweep": lambda: (sweep(1 + JOBS) - sweep(1)) / JOBS,
    }
