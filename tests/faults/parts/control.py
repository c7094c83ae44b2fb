"""Negative control: what is disturbed must differ.

The comparison of the other parts would be worth nothing if it could not fail. Each case disturbs one thing, and the
comparison must see it in the part that is named: another seed, one stream of random numbers drawn from another seed
after a kill, and a resume that forgets one of the things that a checkpoint holds.
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
    """One stream of another seed."""

    def patch() -> None:
        original = Streams.key

        def key(self: Streams, name: str, *position: int) -> int:
            return original(Streams(self.seed + 1) if name == stream else self, name, *position)

        Streams.key = key

    return patch


def forget(kind: type) -> Callable[[], None]:
    """A callback that does not take back its state."""

    def patch() -> None:
        kind.load_state_dict = lambda self, state: None

    return patch


def start_the_order_again() -> None:
    """Images from the first one on."""
    original = StepOrder.__init__

    def start_at_zero(self: StepOrder, *args: Any, **named: Any) -> None:
        original(self, *args, **named)
        self.start = lambda: 0

    StepOrder.__init__ = start_at_zero


def forget_the_optimizer() -> None:
    """Adam without its moments."""
    original = DiffusionModule.on_load_checkpoint

    def load(self: DiffusionModule, checkpoint: dict[str, Any]) -> None:
        original(self, checkpoint)
        checkpoint["optimizer_states"][0]["state"] = {}

    DiffusionModule.on_load_checkpoint = load


# What is disturbed in the resumed part of a run, and where that must be seen.
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
    """The same for both sizes."""
    found = [Case("another seed", another_seed), Case("nothing disturbed", lambda folder: resumed(folder, None, ""))]
    for name, (patch, seen_in) in DISTURBED.items():
        found.append(Case(name, lambda folder, p=patch, s=seen_in: resumed(folder, p, s)))
    return found


def another_seed(folder: Path) -> Outcome:
    """A whole run of seed 1 beside one of seed 0."""
    outcome = Outcome(counts={"disturbed runs": 1})
    reference = straight(folder, "control", WORDS)
    if train(folder, [*WORDS, "seed=1"]).done(outcome):
        must_differ(outcome, reference, folder, ("weights", "order", "losses", "callbacks", "optimizer", "metrics"))
    return outcome


def resumed(folder: Path, patch: Callable[[], None] | None, seen_in: str) -> Outcome:
    """A run that is killed in its fourth save and goes on with something disturbed, or with nothing."""
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
    """Count the run as noticed if it differs in all these parts."""
    found = differences(ended(reference), ended(folder))
    missed = [part for part in parts if part not in found]
    if outcome.expect(not missed, f"no difference in {', '.join(missed)}, although it was disturbed; in {found}"):
        outcome.counts["noticed"] = 1
