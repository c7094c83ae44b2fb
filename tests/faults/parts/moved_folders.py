"""Run folders that are moved or removed while they train.

At a random step the run folder, or the folder of the sweep above it, is renamed, renamed with another folder in its
place, or removed. The run must end with exit code 1 and a sentence, and the old folder must not be made again. A moved
run, continued where it is now, must end bitwise equal to one that stayed.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.faults.case import Case, Outcome
from tests.faults.runs import STEPS, Command, compare, ended, last_step, run_folder, train, wait_for
from tests.faults.shared import straight

VARIANTS: dict[str, list[str]] = {"plain": [], "two processes": ["trainer=ddp_cpu"]}
WAYS = ("moved", "moved, with another folder in its place", "moved with the folder above it", "removed")
MINE = "mine.txt"  # in the other folder


def cases(quick: bool) -> list[Case]:
    """Each way 5 times, in one process and in two; quick: once."""
    selected = []
    for variant in VARIANTS:
        for way in WAYS:
            for index in range(1 if quick else 5):
                name = f"{way} {index}, {variant}"
                selected.append(Case(name, lambda f, w=way, v=variant, n=name: gone(f, w, v, random.Random(n))))
    return selected


def gone(folder: Path, way: str, variant: str, chance: random.Random) -> Outcome:
    """Move or remove the folder of a run, look at how it ends, continue it, and compare."""
    outcome, words = Outcome(counts={way.split(",")[0]: 1}), VARIANTS[variant]
    reference = straight(folder, f"moved-{variant}", words)
    step = chance.randint(1, STEPS - 10)
    command = train(folder, words)
    if not outcome.expect(wait_for(lambda: last_step(folder) >= step, command), f"step {step} was not reached"):
        command.end(outcome)
        return outcome
    here = run_folder(folder)
    assert here is not None
    there = take_away(here, way)
    if not command.done(outcome, 1):
        return outcome
    said = "was removed" if way == "removed" else "was moved to"
    outcome.expect(said in command.output, f"no sentence: {command.output.strip()[-300:]}")
    left = sorted(path.name for path in here.iterdir()) if here.exists() else None
    wanted = [MINE] if "in its place" in way else None
    outcome.expect(left == wanted, f"{here} was made again or changed: {left}")
    if there is None:
        return outcome
    shutil.rmtree(here, ignore_errors=True)
    resumed = Command(["train", f"resume={there}"], folder, fresh=variant == "two processes")
    if resumed.done(outcome):
        there.rename(folder / "runs" / "kept") if there.parent != folder / "runs" else None
        state, other = ended(reference), ended(folder)
        for part in ("order", "losses", "contradictions"):  # recorded by the first command alone
            state.pop(part), other.pop(part)
        compare(outcome, state, other, way)
    return outcome


def take_away(here: Path, way: str) -> Path | None:
    """Do it; returns where the run is now."""
    if way == "removed":
        while here.exists():  # the run may write while its files are removed
            shutil.rmtree(here, ignore_errors=True)
        return None
    if way == "moved with the folder above it":
        above = here.parent.rename(here.parent.with_name("elsewhere"))
        here.parent.mkdir()  # `run_folder` looks in it
        return above / here.name
    there = here.rename(here.with_name("there"))
    if "in its place" in way:
        here.mkdir()
        (here / MINE).write_text("mine")
    return there
