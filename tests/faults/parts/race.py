"""SIGKILL to a race, which must end with the same page to the byte.

A race of three samplers with at most ten seeds, which goes on until two are worse, runs to its end, and again in
another folder, where it is killed up to 15 times, a random time after a random number of runs is done, and started by
the same command. No finished run may be trained again, and race.md and the names of the runs must be those of the race
that was left alone.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path

from tests.faults.case import Case, Outcome
from tests.faults.parts.sweep_kills import kill_once
from tests.faults.runs import EVALUATING, Command
from tests.faults.shared import shared
from tests.faults.sweeps import JOB, done, trained_again

WORDS = [
    "race",
    *JOB,
    *EVALUATING,
    "metrics.names=[fid]",
    "sampler=uniform,mode,beta",
    "seed=0..9",
    "name=jobs",
    "margin=null",
]


def cases(quick: bool) -> list[Case]:
    """2 races, the first with 10 kills or more before it has ended; quick: 1 with at most 3."""
    kills, names = (3, ["race 0"]) if quick else (15, ["race 0", "race 1, two at a time"])
    return [Case(name, lambda folder, n=name: killed(folder, kills, n), limit=1800) for name in names]


def whole(place: Path) -> None:
    """Run the race to its end.

    Raises:
        RuntimeError: it failed.
    """
    outcome = Outcome()
    if not Command(WORDS, place).done(outcome, 0, 900):
        raise RuntimeError(f"the race that is left alone failed: {'; '.join(outcome.wrong)}")


def killed(folder: Path, kills: int, name: str) -> Outcome:
    """Kill and start the race repeatedly, let it end, and compare."""
    outcome, chance = Outcome(counts={"races": 1}), random.Random(name)
    alone, jobs = shared(folder, "race", whole) / "runs" / "jobs", folder / "runs" / "jobs"
    words = [*WORDS, *(["hydra.launcher.n_jobs=2"] if "two" in name else [])]
    finished = done(jobs)
    for _ in range(kills):
        kill_once(outcome, Command(words, folder), jobs, chance, signal.SIGKILL)
        now = done(jobs)
        trained_again(outcome, finished, now)
        finished = now
    Command(words, folder).done(outcome, 0, 900)
    trained_again(outcome, finished, done(jobs))
    outcome.expect(done(jobs).keys() == done(alone).keys(), "other runs were trained")
    same = (jobs / "race.md").read_bytes() == (alone / "race.md").read_bytes()
    outcome.differences += [] if same else ["race.md"]
    outcome.counts["equal pages"] = int(same)
    return outcome
