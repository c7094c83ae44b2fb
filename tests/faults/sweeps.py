"""Settings, jobs and results that the two parts about sweeps share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffusion_lab.runs.folder import is_locked
from diffusion_lab.runs.names import CHECKPOINTS, LAST, RESULT
from diffusion_lab.runs.record import is_done, read_result
from tests.faults.case import Outcome
from tests.faults.runs import SMALL, Command
from tests.harness import differences, final_state

JOB = [*SMALL, "max_steps=12", "snapshot_every=6"]


def results(sweep: Path) -> dict[str, dict[str, Any]]:
    """The result of each run that has ended."""
    return {path.parent.name: read_result(path.parent) for path in sorted(sweep.glob(f"*/{RESULT}"))}


def done(sweep: Path) -> dict[str, tuple[int, int]]:
    """For each finished job, modification times that change when it is trained again."""
    stamps = {}
    for name, result in results(sweep).items():
        if is_done(result):
            files = [sweep / name / file for file in (RESULT, f"{CHECKPOINTS}/{LAST}")]
            stamps[name] = tuple(file.stat().st_mtime_ns for file in files)
    return stamps


def trained_again(outcome: Outcome, before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> None:
    """Record every finished job that was lost or trained again."""
    for name, stamp in before.items():
        what = "was trained again" if name in after else "is not any more"
        outcome.expect(after.get(name) == stamp, f"{name} was done and {what}")


def single(folder: Path, words: Sequence[str], seed: int) -> None:
    """Run the command of one job in `folder`/alone.

    Raises:
        RuntimeError: it failed.
    """
    outcome = Outcome()
    command = Command(["train", *JOB, *words, f"seed={seed}", f"paths.root={folder / 'alone'}"], folder)
    if not command.done(outcome) or outcome.wrong:
        raise RuntimeError(f"the single run of seed {seed} failed: {'; '.join(outcome.wrong)}")


def compare_jobs(outcome: Outcome, sweep: Path, alone: Path) -> None:
    """Each run in `alone` must be bitwise equal to the sweep's job of the same name."""
    for run in sorted(alone.iterdir()):
        parts = differences(final_state(run), final_state(sweep / run.name))
        outcome.differences += [f"{run.name}: {part}" for part in parts]
        outcome.counts["equal to single runs"] = outcome.counts.get("equal to single runs", 0) + (not parts)


def wait_until_unlocked(sweep: Path, limit: float = 60.0) -> bool:
    """Wait until no process trains in any of the folders; False if one still does after `limit` seconds."""
    end = time.monotonic() + limit
    while any(is_locked(path) for path in sweep.iterdir()):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
