"""SIGKILL and SIGTERM to the sweep itself.

A sweep of six jobs, one or two at a time, is killed repeatedly at random moments and started again by the same command.
All its processes must end; no finished job may be lost or trained again, and all must end bitwise equal to single runs.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.faults.case import Case, Outcome
from tests.faults.runs import Command, has_ended, wait_for, wait_for_group
from tests.faults.shared import shared
from tests.faults.sweeps import JOB, compare_jobs, done, single, trained_again, wait_until_unlocked

JOBS, WORDS = 6, ["sampler=loss_second_moment", "sampler.history_per_timestep=2"]


def cases(quick: bool) -> list[Case]:
    """6 sweeps with 4 kills each; quick: 1 with 3."""
    kills = 3 if quick else 4
    names = [f"sweep {index}, {1 + index % 2} at a time" for index in range(1 if quick else 6)]
    return [Case(name, lambda folder, n=name: killed(folder, kills, n), limit=1200) for name in names]


def singles(place: Path) -> None:
    """Run the command of each job."""
    for seed in range(JOBS):
        single(place, WORDS, seed)


def killed(folder: Path, kills: int, name: str) -> Outcome:
    """Kill and start the sweep repeatedly, and finally let it end."""
    outcome, chance = Outcome(counts={"sweeps": 1, "jobs": JOBS}), random.Random(name)
    alone = shared(folder, "singles", singles) / "alone"
    at_a_time = 2 if "2 at a time" in name else 1
    own = [f"seed=range(0,{JOBS})", f"hydra.launcher.n_jobs={at_a_time}", "name=jobs"]
    words, jobs = ["train", "-m", *JOB, *WORDS, *own], folder / "runs" / "jobs"
    finished = done(jobs)
    for number in range(kills):
        kill_once(outcome, Command(words, folder), jobs, chance, (signal.SIGKILL, signal.SIGTERM)[number % 2])
        now = done(jobs)
        trained_again(outcome, finished, now)
        finished = now
    Command(words, folder).done(outcome, 0, 600)
    now = done(jobs)
    trained_again(outcome, finished, now)
    if outcome.expect(len(now) == JOBS, f"{len(now)} of {JOBS} jobs are done"):
        compare_jobs(outcome, jobs, alone)
    return outcome


def kill_once(outcome: Outcome, command: Command, jobs: Path, chance: random.Random, number: signal.Signals) -> None:
    """Kill the main process of the sweep a random time after a random number of jobs is done."""
    enough = len(done(jobs)) + chance.randint(0, 1)
    wait_for(lambda: (jobs / "sweep.json").exists() and len(done(jobs)) >= enough, command)
    time.sleep(chance.uniform(0, 3))
    if has_ended(command):
        command.end(outcome)
        return
    os.kill(command.pid, number)
    code = command.end(outcome)
    allowed = (-9,) if number == signal.SIGKILL else (143, -15)  # -15: before its handler is installed
    if code == 0:  # the sweep had just ended
        return
    outcome.expect(code in allowed, f"exit code {code} after {number.name}")
    outcome.expect(wait_for_group(command), "processes of the sweep are left")
    outcome.expect(wait_until_unlocked(jobs), "jobs go on without their sweep")
    outcome.counts[f"{number.name} to the sweep"] = outcome.counts.get(f"{number.name} to the sweep", 0) + 1
