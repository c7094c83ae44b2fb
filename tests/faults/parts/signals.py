"""SIGTERM, SIGINT and SIGHUP at random steps.

The run must end with code 128 + signal, within seconds and with a checkpoint of its current step; the same command must
then end bitwise equal to an uninterrupted run. SIGINT and SIGHUP are sent to all processes of the run, as by a
terminal, SIGTERM only to the first. Some arrive during an evaluation that takes a minute, five seconds for each network
call.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.training.checkpoint_io import load
from tests.faults.case import Case, Outcome
from tests.faults.runs import (
    EVALUATING,
    STEPS,
    Command,
    compare,
    ended,
    has_ended,
    last_step,
    run_folder,
    train,
    wait_for,
    wait_for_group,
)
from tests.faults.shared import straight

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EVALUATION = "in an evaluation"
RARELY = "checkpoint_every=1000"  # so that only the signal causes a checkpoint
VARIANTS = {
    "plain": [RARELY, "sampler=loss_second_moment", "sampler.history_per_timestep=2"],
    "workers, accumulation": [RARELY, "dataset.num_workers=2", "accumulate=2"],
    "two processes": [RARELY, "trainer=ddp_cpu"],
    EVALUATION: [RARELY, *EVALUATING],
}
ORDER = ["plain", "workers, accumulation", "two processes", EVALUATION, "plain", "plain"]
SECONDS = 30.0  # from the signal to the end; about one on an idle machine


def cases(quick: bool) -> list[Case]:
    """30 of each signal; quick: one for each variant."""
    selected = []
    for number in SIGNALS:
        for index in range(4 if quick else 30):
            variant = ORDER[index % len(ORDER)]
            name = f"{number.name} {index:02d}, {variant}"
            selected.append(Case(name, lambda folder, n=number, v=variant, name=name: stopped(folder, n, v, name)))
    return selected


def stopped(folder: Path, number: signal.Signals, variant: str, name: str) -> Outcome:
    """Stop a run by a signal, run the same command again, and compare."""
    outcome, words, chance = Outcome(counts={number.name: 1}), VARIANTS[variant], random.Random(name)
    reference = straight(folder, variant, words)
    if variant == EVALUATION:
        mark = folder / "evaluating"
        command = train(folder, words, lambda: slow_evaluations(mark))
        arrived = wait_for(mark.exists, command)
    else:
        step = chance.randint(1, STEPS - 8)
        command = train(folder, words)
        arrived = wait_for(lambda: last_step(folder) >= step, command)
    if not outcome.expect(arrived and not has_ended(command), "the run ended before the signal came"):
        command.end(outcome)
        return outcome
    time.sleep(chance.uniform(0, 0.05))
    send(command, number, folder, outcome)
    if not train(folder, words).done(outcome):
        return outcome
    compare(outcome, ended(reference), ended(folder), f"after {number.name}")
    return outcome


def send(command: Command, number: signal.Signals, folder: Path, outcome: Outcome) -> None:
    """Send the signal, and check how the run ends."""
    step, sent = last_step(folder), time.monotonic()
    (os.kill if number == signal.SIGTERM else os.killpg)(command.pid, number)
    command.done(outcome, 128 + number)
    seconds = time.monotonic() - sent
    outcome.expect(seconds < SECONDS, f"{seconds:.0f} s from {number.name} to the end")
    outcome.expect(wait_for_group(command), "processes are left")
    run = run_folder(folder)
    path = run / "checkpoints" / "last.ckpt" if run else folder
    if outcome.expect(path.is_file(), f"no checkpoint after {number.name}"):
        saved = load(path, map_location="cpu")["global_step"]
        outcome.expect(saved >= step, f"the checkpoint is of step {saved}, the signal came after step {step}")


def slow_evaluations(mark: Path) -> None:
    """Patch this process so that a network call for samples takes five seconds; the first makes the file `mark`."""
    original = Denoiser.estimate

    def slow(self: Denoiser, x: Tensor, *args: Any, **cond: Any) -> Any:
        if len(x) > 1:  # with one row the calls of the solver are counted, before the first step
            mark.touch()
            end = time.monotonic() + 5
            while time.monotonic() < end:  # the signal handler runs between two sleeps
                time.sleep(0.01)
        return original(self, x, *args, **cond)

    Denoiser.estimate = slow
