"""Negative control: what is disturbed must differ.

The comparison of the other parts must be able to fail. Each case disturbs one thing, and the comparison must detect it
in a given part: another seed, one stream of random numbers with another seed after a kill, and a resume without one
component of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from diffusion_lab.callbacks import EMA, TimestepSampling
from diffusion_lab.data.order import StepOrder
from diffusion_lab.streams import Streams
from diffusion_lab.training import DiffusionModule
from tests.faults.case import Case, Outcome
from tests.faults.runs import ended, train, wait_for_group
from tests.faults.saves import killed_in_save
from tests.faults.shared import straight
from tests.harness import differences

WORDS = ["sampler=loss_second_moment", "sampler.history_per_timestep=2", "network.dropout=0.1", "dataset.flip=true"]


def other_stream(stream: str) -> Callable[[], None]:
    """A patch that gives one stream another seed."""

    def patch() -> None:
        original = Streams.key

        def key(self: Streams, name: str, *position: int) -> int:
            return original(Streams(self.seed + 1) if name == stream else self, name, *position)

        Streams.key = key

    return patch


def forget(kind: type) -> Callable[[], None]:
    """A patch of a callback that does not restore its state."""

    def patch() -> None:
        kind.load_state_dict = lambda self, state: None

    return patch


def start_the_order_again() -> None:
    """A patch that starts at the first image."""
    original = StepOrder.__init__

    def start_at_zero(self: StepOrder, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        self.start = lambda: 0

    StepOrder.__init__ = start_at_zero


def forget_the_optimizer() -> None:
    """A patch that drops Adam's moments."""
    original = DiffusionModule.on_load_checkpoint

    def load(self: DiffusionModule, checkpoint: dict[str, Any]) -> None:
        original(self, checkpoint)
        checkpoint["optimizer_states"][0]["state"] = {}

    DiffusionModule.on_load_checkpoint = load


# The disturbance in the resumed part of a run, and the part where it must be detected.
DISTURBED: dict[str, tuple[Callable[[], None], str]] = {
    "the noise of another seed": (other_stream("noise"), "losses"),
    "the timesteps of another seed": (other_stream("timesteps"), "order"),
    "the order of another seed": (other_stream("order"), "order"),
    "the flips of another seed": (other_stream("augment"), "order"),
    "the dropout of another seed": (other_stream("dropout"), "losses"),
    "a resume without the sampler's state": (forget(TimestepSampling), "weights"),
    "a resume without the averages": (forget(EMA), "callbacks"),
    "a resume without the optimizer's moments": (forget_the_optimizer, "optimizer"),
    "a resume from the first image": (start_the_order_again, "order"),
}


def cases(quick: bool) -> list[Case]:
    """All cases; the same with --quick."""
    selected = [Case("another seed", another_seed), Case("nothing disturbed", lambda folder: resumed(folder, None, ""))]
    for name, (patch, seen_in) in DISTURBED.items():
        selected.append(Case(name, lambda folder, p=patch, s=seen_in: resumed(folder, p, s)))
    return selected


def another_seed(folder: Path) -> Outcome:
    """Compare a run of seed 1 with one of seed 0."""
    outcome = Outcome(counts={"disturbed runs": 1})
    reference = straight(folder, "control", WORDS)
    if train(folder, [*WORDS, "seed=1"]).done(outcome):
        must_differ(outcome, reference, folder, ("weights", "order", "losses", "callbacks", "optimizer", "metrics"))
    return outcome


def resumed(folder: Path, patch: Callable[[], None] | None, seen_in: str) -> Outcome:
    """Kill a run in its fourth save and resume it, disturbed by `patch` or undisturbed."""
    outcome = Outcome(counts={"disturbed runs": 1} if patch else {"undisturbed runs": 1})
    reference = straight(folder, "control", WORDS)
    first = train(folder, WORDS, killed_in_save(4, 1000))
    outcome.expect(first.end(outcome) == -9, "the first part was not killed")
    wait_for_group(first)
    if not train(folder, WORDS, patch).done(outcome):
        return outcome
    if patch is None:
        outcome.differences += differences(ended(reference), ended(folder))
    else:
        must_differ(outcome, reference, folder, (seen_in,))
    return outcome


def must_differ(outcome: Outcome, reference: Path, folder: Path, parts: tuple[str, ...]) -> None:
    """Count the disturbance as noticed if the run differs in all these parts."""
    differing = differences(ended(reference), ended(folder))
    missed = [part for part in parts if part not in differing]
    if outcome.expect(not missed, f"no difference in {', '.join(missed)}, although it was disturbed; in {differing}"):
        outcome.counts["noticed"] = 1
