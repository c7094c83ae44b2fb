"""SIGTERM, SIGINT and SIGHUP at random steps.

The run must end with code 128 + signal, within seconds and with a checkpoint of the step that it was in; the same
command then ends as a run that nobody stopped, to the bit. As a terminal does, SIGINT and SIGHUP reach all processes of
the run; SIGTERM only the first. Some arrive in the middle of an evaluation that takes a minute: five seconds for each
call of the network.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

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
RARELY = "checkpoint_every=1000"  # what is saved is saved because of the signal
VARIANTS = {
    "plain": [RARELY, "sampler=loss_second_moment", "sampler.history_per_timestep=2"],
    "workers, accumulation": [RARELY, "dataset.num_workers=2", "accumulate=2"],
    "two processes": [RARELY, "trainer=ddp_cpu"],
    EVALUATION: [RARELY, *EVALUATING],
}
ORDER = ["plain", "workers, accumulation", "two processes", EVALUATION, "plain", "plain"]
SECONDS = 30.0  # from the signal to the end; on a quiet machine it is one


def cases(quick: bool) -> list[Case]:
    """30 of each signal; quick: one for each variant."""
    found = []
    for number in SIGNALS:
        for index in range(4 if quick else 30):
            variant = ORDER[index % len(ORDER)]
            name = f"{number.name} {index:02d}, {variant}"
            found.append(Case(name, lambda folder, n=number, v=variant, name=name: stopped(folder, n, v, name)))
    return found


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
    """Send the signal, and see how the run ends."""
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
    """In this process, the network takes five seconds for a sample; its first call makes the file `mark`."""
    original = Denoiser.estimate

    def slow(self: Denoiser, *args: Any, **cond: Any) -> Any:
        mark.touch()
        end = time.monotonic() + 5
        while time.monotonic() < end:  # a signal's handler runs between two naps
            time.sleep(0.01)
        return original(self, *args, **cond)

    Denoiser.estimate = slow
