"""SIGKILL at random moments, every method.

Each case trains one configuration without interruption, then again with kills, each followed by the same command. Half
of the kills are in a save, at a random line; the others at a random time after the start, or soon after a random step.
The results of both runs must be bitwise equal. If the number of processes changes with each start, images and timesteps
must be equal, and weights equal up to rounding.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from diffusion_lab.cli.config import conf_dir
from tests.faults.case import Case, Outcome
from tests.faults.runs import (
    EVALUATING,
    STEPS,
    compare,
    ended,
    has_ended,
    last_step,
    timed,
    train,
    wait_for,
    wait_for_group,
)
from tests.faults.saves import killed_in_save

LINES = 60  # of one save, about
PLACES = IN_A_SAVE, IN_A_STEP, AT_ANY_TIME = ("in a save", "in a step", "at any time")

TWO = ["trainer.devices=2", "trainer.strategy=ddp_fork"]
# Every kind of process and batch, with methods that have different state.
VARIANTS = {
    "accumulation": (["accumulate=2"], ("learned_beta", "loss_second_moment", "iddpm")),
    "workers": (["dataset.num_workers=2"], ("slots", "clts_mdlrc")),
    "dropout": (["network.dropout=0.1"], ("learned_beta_released", "mixed_paper")),
    "two processes": (TWO, ("learned_beta", "loss_second_moment", "combined", "clts_mdlrc")),
    "two processes, accumulation, workers, dropout": (
        [*TWO, "accumulate=2", "dataset.num_workers=2", "network.dropout=0.1"],
        ("variance",),
    ),
    "evaluations": (EVALUATING, ("min_snr_learned_beta",)),
}
# Not with samplers that learn from losses: rounding would change their draws.
CHANGING = ("min_snr", "clts_mdlrc", "speed")
ROUNDING = 1e-4  # of the weights' norm, after `STEPS` steps of Adam


class Setup(NamedTuple):
    """One configuration, and the additional words of odd and even starts if they differ."""

    name: str
    words: list[str]
    other: list[str] | None = None


def setups() -> list[Setup]:
    """Every method alone, the variants, and the changes of the number of processes."""
    methods = sorted(path.stem for path in (conf_dir() / "method").glob("*.yaml"))
    listed = [Setup(method, words(method)) for method in methods]
    for name, (more, of) in VARIANTS.items():
        listed += [Setup(f"{method}, {name}", [*words(method), *more]) for method in of]
    return listed + [Setup(f"{method}, one process or two", words(method), TWO) for method in CHANGING]


def words(method: str) -> list[str]:
    """The words of a method, whose learned parts are updated within `STEPS` steps."""
    overrides = [f"method={method}"]
    if "learned_beta" in method:
        overrides.append("sampler.every=4")
    if method == "variance":
        overrides.append("sampler.every=6")
    return overrides


def cases(quick: bool) -> list[Case]:
    """One for each setup; quick: a few setups, two kills each."""
    chosen = setups()
    if quick:
        chosen = [chosen[0], *chosen[-12::4], chosen[-1]]
    return [Case(setup.name, lambda folder, setup=setup: killed(setup, folder, 2 if quick else 3)) for setup in chosen]


def killed(setup: Setup, folder: Path, kills: int) -> Outcome:
    """Train without and with kills, and compare."""
    outcome, chance = Outcome(), random.Random(setup.name)
    straight, other = folder / "straight", folder / "killed"
    for path in (straight, other):
        path.mkdir()
    with timed() as seconds:
        if not train(straight, setup.words).done(outcome):
            return outcome
    starts = [setup.words, [*setup.words, *setup.other]] if setup.other else [setup.words]
    places: list[str] = []
    for _ in range(4 * kills):
        place = kill_once(other, starts[(len(places) + 1) % len(starts)], chance, seconds[0], outcome)
        if place:
            places.append(place)
        else:  # it ended before the kill; start again
            places.clear()
            shutil.rmtree(other)
            other.mkdir()
        if len(places) == kills:
            break
    outcome.expect(len(places) == kills, f"only {len(places)} kills hit a running process")
    outcome.counts = {"kills": len(places)} | {place: places.count(place) for place in PLACES}
    if not train(other, starts[0]).done(outcome):
        return outcome
    outcome.counts["finished runs"] = 1
    judge(outcome, ended(straight), ended(other), exact=setup.other is None)
    return outcome


def kill_once(folder: Path, words: Sequence[str], chance: random.Random, seconds: float, outcome: Outcome) -> str:
    """Start the run and kill it; returns the place of the kill, empty if the run ended before."""
    if chance.random() < 0.5:
        command = train(folder, words, killed_in_save(chance.choice([1, 1, 2]), chance.randint(1, LINES)))
        code = command.end(outcome)
        wait_for_group(command)
        outcome.expect(code in (-9, 0), f"exit code {code} of a run that was to be killed: {command.log}")
        return IN_A_SAVE if code == -9 else ""
    command = train(folder, words)
    if chance.random() < 0.5:
        delay, where = chance.uniform(0.1, 0.8) * seconds, AT_ANY_TIME
        wait_for(lambda: False, command, delay)
    else:
        step, where = last_step(folder) + chance.randint(1, STEPS // 4), IN_A_STEP
        wait_for(lambda: last_step(folder) >= step, command)
    if has_ended(command):
        outcome.expect(command.end(outcome) == 0, f"a run that was not killed failed: {command.log}")
        return ""
    command.kill()
    outcome.read(command.output)
    return where


def judge(outcome: Outcome, straight: dict[str, Any], other: dict[str, Any], exact: bool) -> None:
    """Compare the results of two runs, bitwise or up to rounding."""
    if exact:
        compare(outcome, straight, other, "killed run")
        return
    for part in ("step", "order"):
        outcome.expect(straight[part] == other[part], f"{part} differs where only rounding may")
    difference = sum(float((other["weights"][k] - w).double().norm() ** 2) for k, w in straight["weights"].items())
    size = sum(float(w.double().norm() ** 2) for w in straight["weights"].values())
    relative = (difference / size) ** 0.5
    outcome.expect(0 < relative < ROUNDING, f"weights differ by {relative:.1e} of their norm, not by rounding")
    outcome.expect(all(torch.isfinite(w).all() for w in other["weights"].values()), "weights are not finite")
