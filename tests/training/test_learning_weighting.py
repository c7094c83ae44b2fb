"""Weightings that see the rows which they weight, and learn from updates."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from diffusion_lab.diffusion import Step, Uncertainty, Unit
from tests.auxiliary.small import T, at, images, module, stepped
from tests.harness import configuration, differences, final_state, train_child, trained


class Averaging(Unit):
    """1/(1 + the mean loss of all updates)."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.calls: list[tuple[int, int]] = []

    def observe(self, record: Any, snr: Tensor) -> None:
        t, loss = record.gathered()
        self.calls.append((len(t), len(snr)))
        self.mean += (loss.mean() - self.mean) / len(self.calls)

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return super().native_weight(snr, scale, step) / (1 + self.mean)


class Seeing(Unit):
    """The loss times the mean square of the noisy image; plain without a record."""

    uses_record = True

    def forward(self, native_loss: Tensor, snr: Tensor, scale: Tensor, step: int, record: Step | None = None) -> Tensor:
        loss = super().forward(native_loss, snr, scale, step)
        return loss if record is None else loss * record.x_t.square().flatten(1).mean(1)


def updated(of: Any, times: int) -> list[Any]:
    """Training steps whose records the module shows to what learns, as after an optimizer step."""
    of.after_step = []
    of._find_learning()
    results = []
    for step in range(times):
        results.append(stepped(at(of, step)))
        for act in of.after_step:
            act(step + 1, [results[-1]["record"]])
    return results


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_weighting_learns_from_every_update(wrapped: bool) -> None:
    learned = Averaging()
    of = module(weighting=Uncertainty(learned) if wrapped else learned)
    first, second = updated(of, 2)
    assert learned.calls == [(6, T), (6, T)]
    native = [result["record"].loss for result in (first, second)]
    assert float(learned.mean) == pytest.approx(float(torch.stack(native).mean()), rel=1e-6)
    assert torch.equal(first["record"].objective, native[0])
    assert torch.allclose(second["record"].objective, native[1] / (1 + native[0].mean()))
    assert any(name.endswith("mean") for name in of.state_dict())


def test_a_weighting_that_does_not_learn_is_shown_nothing() -> None:
    of = module()
    updated(of, 1)
    assert of.after_step == []


def test_a_weighting_sees_the_rows_that_it_weights() -> None:
    seen, plain = stepped(module(weighting=Seeing())), stepped(module())
    of = at(module(), 0)
    pairs = of.pair(images(), {})
    x_t = of.denoiser.schedule.perturb(pairs.x0, pairs.eps, pairs.t)
    expected = plain["record"].loss * x_t.square().flatten(1).mean(1)
    assert torch.allclose(seen["record"].objective, expected) and torch.equal(seen["record"].loss, plain["record"].loss)


def learning() -> None:
    """Let `weighting=unit` divide by 1 and the mean of the losses that it has seen, in halves."""
    changed: Any = Unit
    start, weight = changed.__init__, changed.native_weight

    @wraps(start)
    def init(self, *given, **named):
        start(self, *given, **named)
        self.register_buffer("mean", torch.zeros(()))

    def observe(self, record, snr):
        self.mean += 0.5 * (record.gathered()[1].mean() - self.mean)

    changed.__init__, changed.observe = init, observe
    changed.native_weight = lambda self, snr, scale, step: weight(self, snr, scale, step) / (1 + self.mean)


@pytest.mark.slow
def test_a_run_that_learns_its_weights_continues_exactly_and_is_the_same_on_two_processes(tmp_path: Path) -> None:
    words = ["max_steps=8", "log_every=4", "snapshot_every=0", "checkpoint_every=3", "weighting=unit"]
    whole, killed = (
        trained(configuration(tmp_path / name, *words), kills, learning) for name, kills in (("a", []), ("b", [4]))
    )
    assert differences(whole, killed) == []
    assert float(whole["weights"]["weighting.mean"]) > 0.1  # type: ignore[index]
    for name, more in (
        ("two", ["trainer.devices=2", "trainer.strategy=ddp_fork"]),
        ("micro", ["accumulate=2"]),
    ):
        train_child(configuration(tmp_path / name, *words, *more), learning).succeed()
        weights: Any = final_state(tmp_path / name)["weights"]
        for key, value in whole["weights"].items():  # type: ignore[attr-defined]
            assert torch.allclose(value, weights[key], atol=2e-5), (name, key)
