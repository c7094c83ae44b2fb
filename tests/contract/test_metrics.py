"""Every metric of conf/metric: its record says what a reader needs, and its value depends on nothing else."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from diffusion_lab.data import Digits, ImageDataModule, SuperResolution
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedSmall, NoiseSchedule
from diffusion_lab.metrics import ClassifierFeatures, Evaluation, Metric
from diffusion_lab.metrics.result import MetricResult
from diffusion_lab.solvers import DDIM
from tests.conf.test_options import options
from tests.metrics.named import named

NAMES = options("metric")
COUNT = 140


class Shrinks(nn.Module):
    """eps = x_t / 2 whatever the conditions: no row depends on another."""

    def forward(self, x_t: torch.Tensor, t: torch.Tensor, **cond: torch.Tensor) -> torch.Tensor:
        return x_t / 2


def measured(metrics: list[Metric], batch_size: int) -> dict[str, MetricResult]:
    """Results by the beginning of their names, of one model on pairs and on classes."""
    schedule = NoiseSchedule(torch.linspace(1e-3, 0.5, 24, dtype=torch.float64))  # ln SNR from 6.9 to -7.4
    denoiser = Denoiser(Shrinks(), schedule, Epsilon(), FixedSmall())
    found: dict[str, MetricResult] = {}
    for paired in (True, False):
        task = SuperResolution(2) if paired else None
        data = ImageDataModule(Digits(), 16, conditional=not paired, task=task, features=ClassifierFeatures("digits"))
        of = [metric for metric in metrics if paired == ("pairs" in metric.needs)]
        evaluation = Evaluation(COUNT, batch_size, metrics=of)
        results = evaluation(denoiser, DDIM(steps=2), data, keep=0).results
        assert [result.name for result in results] == evaluation.result_names(data)
        found |= dict(zip([metric.name for metric in evaluation.measured(data)], results, strict=True))
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, MetricResult], dict[str, MetricResult]]:
    """Twice, in other batches and in another order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DIFFUSION_LAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        return measured(named(*NAMES), 50), measured(named(*NAMES[::-1]), 140)


@pytest.mark.parametrize("name", NAMES)
def test_the_value_is_a_number_that_batches_and_other_metrics_do_not_change(
    name: str, results: tuple[dict[str, MetricResult], dict[str, MetricResult]]
) -> None:
    one, other = (found[name] for found in results)
    assert isinstance(one.value, float) and math.isfinite(one.value)
    assert one.value == pytest.approx(other.value, rel=1e-5, abs=1e-6)
    assert one._replace(value=0.0) == other._replace(value=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_record_says_direction_units_and_protocol(
    name: str, results: tuple[dict[str, MetricResult], dict[str, MetricResult]]
) -> None:
    line = json.loads(json.dumps(results[0][name].line(step=3)))
    low, high = line.pop("interval", (line["value"], line["value"]))
    assert low <= line["value"] <= high
    assert list(line) == ["step", "name", "value", "better", "units", "compared_by", "protocol"] and line["step"] == 3
    assert line["better"] in ("lower", "higher", "neither") and isinstance(line["units"], str)
    assert str(COUNT) in line["name"]
    assert {"seed", "ema_decay"} <= set(line["protocol"])
