"""What TimestepLog and Validation write, against numbers worked out by hand from known timesteps, losses and sampler.

The runs are real ones of 4 steps, but the loss of a row is f(t) (1 + w) with f(t) = (t + 1)/T and w one number of the
network, and the timesteps come from a table. T = 40, 4 bins and quarters of 10 timesteps, 16 rows per step.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from diffusion_lab.callbacks import TimestepSampling
from diffusion_lab.callbacks.base import StepCallback, find
from diffusion_lab.cli.build import TrainingRun, build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.diffusion.denoiser import Loss
from diffusion_lab.diffusion.prediction import LossParts
from diffusion_lab.timesteps import Context, Draw, TimestepSampler
from tests.harness import configuration

T, BINS, ROWS, STEPS = 40, 4, 16, 4
EMA_DECAY = "callbacks.ema.decays=[0.25]"  # reached at the third step; before it the warm-up's (1+k)/(10+k) counts
LOSS = (np.arange(T) + 1) / T  # f
P = (np.arange(T) + 1) ** 2 / np.sum((np.arange(T) + 1) ** 2)  # the sampler's probabilities, far from symmetric
TIMES = np.array([[(3 * row + 11 * step) % 28 for row in range(ROWS)] for step in range(STEPS)])  # none in the last bin


class Known(TimestepSampler):
    """Says that it draws with P and gives a table's timesteps, each with the weight 3."""

    def probabilities(self, step: int) -> Tensor:
        return torch.tensor(P)

    def draw(self, x0: Tensor, context: Context) -> Draw:
        return Draw(torch.tensor(TIMES[context.step])[context.rows(len(x0))], torch.full((len(x0),), 3.0))


class Weights(StepCallback):
    """w after each step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_step_end(self, trainer: Any, module: Any, step: int, records: list) -> None:
        self.seen.append(float(_number(module.denoiser).detach()))


def _number(denoiser: Any) -> Tensor:
    """w."""
    return next(denoiser.parameters()).flatten()[0]


def _with_known_loss(run: TrainingRun) -> list[float]:
    """Let the run's loss be f(t) (1 + w); gives the list in which w before each step will stand."""
    denoiser, before = run.module.denoiser, []

    def loss(x0: Tensor, eps: Tensor, t: Tensor, **cond: Tensor) -> Loss:
        w = _number(denoiser)
        if torch.is_grad_enabled():
            before.append(float(w.detach()))
        native = torch.tensor(LOSS, dtype=torch.float32)[t] * (1 + w)
        snr = denoiser.schedule.snr[t].float()
        scale = denoiser.prediction.native_scale(snr)[:, None]
        return Loss(native, torch.zeros_like(native), LossParts(native[:, None], scale), x0.new_zeros(len(t), 0), snr)

    denoiser.loss = loss
    return before


def trained(folder: Path, *overrides: str, known: bool = True) -> tuple[list[dict[str, Any]], list[float], list[float]]:
    """metrics.jsonl of 4 steps with two logs and a validation, w before each step and w after each step."""
    quiet_libraries()
    words = [f"max_steps={STEPS}", "log_every=2", "snapshot_every=4", "checkpoint_every=0", "dataset.val_images=80"]
    cfg = configuration(folder, *words, "optimizer.lr=0.05", "gradient_clip=null", *overrides)
    after = Weights()
    run = build_run(cfg, facts(cfg), [after])
    sampling = find(run.trainer, TimestepSampling)
    assert sampling is not None and run.module.denoiser.num_timesteps == T and cfg.batch_size == ROWS
    if known:
        sampling.sampler = Known(T)
    before = _with_known_loss(run)
    run.trainer.fit(run.module, datamodule=run.data)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return lines, before, after.seen


def binned(values: np.ndarray, t: np.ndarray) -> list[float]:
    """Sum of the values of each of 4 bins of 10 timesteps."""
    return [float(values[(t >= 10 * b) & (t < 10 * b + 10)].sum()) for b in range(BINS)]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[float], list[float]]:
    """With a weighting that the logged losses must not have, Min-SNR on v, and two passes per step."""
    folder = tmp_path_factory.mktemp("known") / "run"
    return trained(folder, "weighting=min_snr", "weighting.gamma=2", "prediction=v", "accumulate=2", EMA_DECAY)


def test_train_losses_are_means_of_the_native_loss_since_the_last_log(known: Any) -> None:
    lines, before, _ = known
    assert len(before) == 2 * STEPS and before[0] != before[-1]  # two passes; w moves
    logged = [line for line in lines if "train/loss" in line]
    assert [(line["step"], line["images"]) for line in logged] == [(2, 32), (4, 64)]
    for line, steps in zip(logged, ((0, 1), (2, 3)), strict=True):
        t = np.concatenate([TIMES[step] for step in steps])
        loss = np.concatenate([LOSS[TIMES[step]] * (1 + before[2 * step]) for step in steps])
        assert line["train/loss"] == pytest.approx(loss.mean(), rel=1e-6)
        counts = binned(np.ones(len(t)), t)
        means = [total / n for total, n in zip(binned(loss, t), counts, strict=True) if n]
        assert counts[3] == 0 and len(means) == 3
        assert line["train/loss_t"][:3] == pytest.approx(means, rel=1e-6)
        assert line["train/loss_t"][3] is None or np.isnan(line["train/loss_t"][3])
        assert [line[f"train/loss_q{i}"] for i in range(3)] == pytest.approx(means, rel=1e-6)
        assert "train/loss_q3" not in line


def test_drawn_is_the_share_of_all_rows_since_the_start(known: Any) -> None:
    logged = [line for line in known[0] if "sampler/drawn" in line]
    for line, steps in zip(logged, (2, 4), strict=True):
        t = TIMES[:steps].flatten()
        assert line["sampler/drawn"] == pytest.approx([n / len(t) for n in binned(np.ones(len(t)), t)], rel=1e-9)
    assert logged[0]["sampler/drawn"] != logged[1]["sampler/drawn"]


def linear_snr() -> np.ndarray:
    """(T,) of Ho et al.'s linear schedule at T = 40: its rates times 1000/T, which keeps the end as noisy."""
    kept = np.cumprod(1 - np.linspace(1e-4, 0.02, T) * 1000 / T)
    return kept / (1 - kept)


def test_probabilities_and_effective_weights_are_the_samplers_and_the_weightings(known: Any) -> None:
    """Min-SNR weights the x0-loss by min(SNR, 2), so the eps-loss by min(SNR, 2)/SNR, whatever is predicted."""
    expected = P * np.minimum(linear_snr(), 2) / linear_snr()
    for line in known[0]:
        if "sampler/p" in line:
            assert line["sampler/p"] == pytest.approx(binned(P, np.arange(T)), rel=1e-9)
            objective = binned(expected / expected.sum(), np.arange(T))
            assert line["sampler/objective"] == pytest.approx(objective, rel=1e-4)
            assert (line["optim/lr"], line["optim/beta1"]) == (0.05, 0.9)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["prediction=x0"], lambda p, snr: p / snr),  # unit weight on the x0-loss
        (["prediction=v"], lambda p, snr: p * (1 + snr) / snr),
        (["prediction=eps"], lambda p, snr: p),
    ],
)
def test_objective_of_a_unit_weight_in_each_space(overrides: list[str], expected: Any, tmp_path: Path) -> None:
    lines, _, _ = trained(tmp_path / "run", *overrides, "~callbacks.validation")
    values = expected(P, linear_snr())
    assert lines[0]["sampler/objective"] == pytest.approx(binned(values / values.sum(), np.arange(T)), rel=1e-4)


def test_a_reweighted_sampler_has_its_own_probabilities_and_the_uniform_objective(tmp_path: Path) -> None:
    words = ["sampler=power", "sampler.reweight=true", "~callbacks.validation"]
    lines, _, _ = trained(tmp_path / "run", *words, known=False)
    assert max(lines[0]["sampler/p"]) > 0.4
    assert lines[0]["sampler/objective"] == pytest.approx([0.25] * BINS, rel=1e-5)


def test_validation_is_the_mean_of_every_timestep_with_averaged_weights(known: Any) -> None:
    """80 images at 40 timesteps: two at each, so every bin's mean is that of f, times 1 + the average of w."""
    lines, before, after = known
    average = before[0]
    for k, w in enumerate(after, 1):
        decay = min(0.25, (1 + k) / (10 + k))
        average = decay * average + (1 - decay) * w
    (line,) = [line for line in lines if "val/loss" in line]
    means = [LOSS[10 * b : 10 * b + 10].mean() * (1 + average) for b in range(BINS)]
    assert (line["step"], line["images"]) == (4, 64)
    assert line["val/loss_t"] == pytest.approx(means, rel=1e-6)
    assert line["val/loss"] == pytest.approx(np.mean(means), rel=1e-6)
    assert abs(average - after[-1]) > 0.01  # raw weights would be seen


def test_without_averages_validation_takes_the_weights_themselves(tmp_path: Path) -> None:
    lines, _, after = trained(tmp_path / "run", "~callbacks.ema", "callbacks.validation.bins=8")
    (line,) = [line for line in lines if "val/loss" in line]
    assert line["val/loss_t"] == pytest.approx([LOSS[5 * b : 5 * b + 5].mean() * (1 + after[-1]) for b in range(8)])
    assert line["val/loss"] == pytest.approx(LOSS.mean() * (1 + after[-1]))
