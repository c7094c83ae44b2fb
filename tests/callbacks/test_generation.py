"""When the samples of an evaluation are measured, and what is said of a value that is no number."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from diffusion_lab.callbacks import evaluation as module_of_evaluations
from diffusion_lab.callbacks.evaluation import Generation, measured
from diffusion_lab.metrics import Evaluated, Latents, MetricResult
from diffusion_lab.streams import Streams
from diffusion_lab.training import DiffusionModule


@pytest.mark.parametrize(
    ("every", "metrics_every", "last", "wanted"),
    [
        (500, 2000, 2000, [2000]),  # the default run
        (500, 2000, 6200, [2000, 4000, 6000, 6200]),
        (500, 0, 1600, [500, 1000, 1500, 1600]),
        (500, 500, 1500, [500, 1000, 1500]),
        (4000, 2000, 20000, [4000, 8000, 12000, 16000, 20000]),  # scale=small: every evaluation
        (26042, 2000, 60000, [26042, 52084, 60000]),
        (300, 1000, 2500, [1200, 2100, 2500]),  # the first evaluation from each thousandth step on
    ],
)
def test_the_evaluations_with_metrics(every, metrics_every, last, wanted):
    evaluations = [*range(every, last, every), last]
    assert [step for step in evaluations if measured(step, every, metrics_every, last)] == wanted


def test_the_calls_of_a_solver_are_counted_once_for_all_evaluations(monkeypatch):
    counted = []
    monkeypatch.setattr(module_of_evaluations, "network_calls", lambda *given: counted.append(given) or 50)
    evaluation = SimpleNamespace(calls=lambda data, calls, timesteps, seed, grid: 1000 * calls)
    callback, module = Generation("run", None, evaluation, 10, 100, 64), DiffusionModule.__new__(DiffusionModule)
    nn.Module.__init__(module)
    module.denoiser, module.streams = SimpleNamespace(num_timesteps=1000), Streams(0)
    trainer = SimpleNamespace(datamodule=SimpleNamespace(batch_size=2), callbacks=[], max_steps=100)
    assert [callback.rows(trainer, module, step) for step in (10, 20, 100)] == [3200, 3200, 50_000]
    assert len(counted) == 1


def test_an_interval_below_zero_is_refused():
    with pytest.raises(ValueError, match="^metrics_every=-1 must be an integer >= 0"):
        Generation("run", None, None, metrics_every=-1)


def test_a_value_that_is_not_finite_is_warned_of_once_with_its_metric_and_step(tmp_path, caplog):
    results = [MetricResult(name, value, {}, "lower", "") for name, value in (("mine32", math.nan), ("fid32", 1.0))]
    drawn: list[Latents] = []

    def evaluation(*_, latents, **how):
        drawn.append(latents)
        return Evaluated(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), results, None)

    generation = Generation(tmp_path, None, evaluation)
    plugin = SimpleNamespace(precision_plugin=SimpleNamespace(forward_context=nullcontext))
    trainer = SimpleNamespace(callbacks=[], loggers=[], is_global_zero=True, global_step=4, max_steps=8)
    trainer.strategy, trainer.datamodule = plugin, SimpleNamespace(batch_size=2)
    module = nn.Linear(1, 1)
    module.model, module.device, module.streams = nn.Identity(), "cpu", Streams(5)
    for step in (4, 8):
        generation.evaluate(trainer, module, step)
    assert caplog.messages == ["metrics/mine32 is not finite at step 4 (nan)"]
    assert drawn == [Latents.of_run(5)] * 2  # of the run's seed
