"""Flipped bits and cut ends of a checkpoint.

A run of 24 steps is killed at the end of its third save, when `previous.ckpt` is the second. Each case damages a copy:
the damage must be detected, and the run must continue from the previous file and end bitwise equal. With both files
damaged it must refuse, name both, and change nothing.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from diffusion_lab.training.checkpoint_io import DamagedCheckpoint, load
from tests.faults.case import Case, Outcome
from tests.faults.runs import compare, ended, run_folder, train, wait_for_group
from tests.faults.saves import killed_in_save
from tests.faults.shared import shared, straight

WORDS = ["sampler=loss_second_moment", "sampler.history_per_timestep=2"]
FLIPS, CUTS, BOTH = "bit flips", "truncations", "both damaged"


def cases(quick: bool) -> list[Case]:
    """200 flips, 50 truncations, 10 times both files."""
    numbers = {FLIPS: 6, CUTS: 4, BOTH: 2} if quick else {FLIPS: 200, CUTS: 50, BOTH: 10}
    selected = []
    for kind, number in numbers.items():
        for index in range(number):
            name = f"{kind} {index:03d}"
            work = refused if kind == BOTH else gone_on
            selected.append(Case(name, lambda folder, w=work, k=kind, n=name: w(folder, k, random.Random(n))))
    return selected


def cut_run(place: Path) -> None:
    """Kill a run after its third save."""
    command = train(place, WORDS, killed_in_save(3, 1000))
    command.end(Outcome())
    wait_for_group(command)
    (path,) = place.glob("runs/*/checkpoints/last.ckpt")
    if not 0 < step_of(path.with_name("previous.ckpt")) < step_of(path):
        raise RuntimeError(f"no two checkpoints in {path.parent}")


def step_of(path: Path) -> int:
    """The step of a good checkpoint."""
    return load(path, map_location="cpu")["global_step"]


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Flip one bit of the file, or cut it off at a random length."""
    good = bytearray(path.read_bytes())
    if kind == CUTS:
        path.write_bytes(good[: chance.choice([0, 1, chance.randrange(len(good)), len(good) - 1])])
        return
    good[chance.randrange(len(good))] ^= 1 << chance.randrange(8)
    path.write_bytes(good)


def copy_of_cut_run(folder: Path) -> Path:
    """Copy the killed run to this case's folder; returns the folder of its checkpoints."""
    source = shared(folder, "killed", cut_run)
    shutil.copytree(source / "runs", folder / "runs")
    shutil.copy(source / "seen.jsonl", folder / "seen.jsonl")
    run = run_folder(folder)
    assert run is not None
    return run / "checkpoints"


def gone_on(folder: Path, kind: str, chance: random.Random) -> Outcome:
    """With `last.ckpt` damaged, the run must continue from `previous.ckpt`."""
    outcome = Outcome(counts={kind: 1})
    reference, checkpoints = straight(folder, "damage", WORDS), copy_of_cut_run(folder)
    damage(checkpoints / "last.ckpt", kind, chance)
    try:
        load(checkpoints / "last.ckpt")
    except DamagedCheckpoint:
        outcome.counts["noticed"] = 1
    else:
        outcome.problems.append("the damaged file was read")
    message = f"from step {step_of(checkpoints / 'previous.ckpt')} (previous.ckpt)"
    command = train(folder, WORDS)
    if not command.done(outcome):
        return outcome
    outcome.expect(message in command.output, f"not continued from previous.ckpt: {command.log}")
    outcome.expect("last.ckpt" in command.output, f"the damaged file is not named: {command.log}")
    compare(outcome, ended(reference), ended(folder), kind)
    if not outcome.differences:
        outcome.counts["equal ends"] = 1
    return outcome


def refused(folder: Path, kind: str, chance: random.Random) -> Outcome:
    """With both files damaged, the run must print one message and change nothing."""
    outcome = Outcome(counts={"pairs damaged": 1})
    checkpoints = copy_of_cut_run(folder)
    for name in ("last.ckpt", "previous.ckpt"):
        damage(checkpoints / name, chance.choice([FLIPS, CUTS]), chance)
    kept = ("metrics.jsonl", "run.json", "checkpoints/last.ckpt", "checkpoints/previous.ckpt")
    before = {name: (checkpoints.parent / name).read_bytes() for name in kept}
    command = train(folder, WORDS)
    code = command.end(outcome)
    named = "last.ckpt" in command.output and "previous.ckpt" in command.output
    good = outcome.expect(code not in (0, None), f"exit code {code}: it was not refused")
    good &= outcome.expect(named, f"the damaged files are not both named: {command.log}")
    changed = [name for name, content in before.items() if (checkpoints.parent / name).read_bytes() != content]
    if outcome.expect(not changed, f"changed although refused: {', '.join(changed)}") and good:
        outcome.counts["refused"] = 1
    return outcome
