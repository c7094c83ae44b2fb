"""What a run gives to the loggers besides metrics.jsonl: gradient norm, images/s, memory, clock, labels and axes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.loggers import RunLogger
from diffusion_lab.streams import Streams
from diffusion_lab.training.run_module import RunModule
from tests.harness import configuration


class Heard(RunLogger):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__("nowhere")
        self.mirrored: list[tuple[int, dict[str, float]]] = []
        self.axes: dict[str, Any] = {}
        self.better: dict[str, str] = {}
        self.tags: list[str] = []
        self.config: dict[str, Any] = {}

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        pass

    def mirror_values(self, values: Any, step: int) -> None:
        self.mirrored.append((step, dict(values)))

    def log_values(self, values: Any, step: int, axes: Any = None) -> None:
        self.axes |= {key: (len(values[key]), axis) for key, axis in (axes or {}).items()}

    def log_directions(self, better: Any) -> None:
        self.better |= better

    def log_tags(self, tags: Any) -> None:
        self.tags += tags

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self.config = params


class Norms(Callback):
    """The norm of the whole gradient of each step, before it is clipped."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        squares = [p.grad.double().square().sum() for p in pl_module.parameters() if p.grad is not None]
        self.seen.append(float(torch.stack(squares).sum().sqrt()))


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> tuple[Heard, list[float], list[dict[str, Any]]]:
    quiet_libraries()
    folder = tmp_path_factory.mktemp("mirrored") / "run"
    cfg = configuration(folder, "method=clts", "schedule=cosine", "max_steps=5", "log_every=2", "accumulate=2")
    logger, norms = Heard(), Norms()
    run = build_run(cfg, facts(cfg), [norms])
    run.trainer.loggers = [*run.trainer.loggers, logger]
    run.trainer.fit(run.module, datamodule=run.data)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return logger, norms.seen, lines


def test_gradient_norm_is_the_mean_since_the_last_log(heard: Any) -> None:
    logger, norms, _ = heard
    logged = [
        (step, values["optim/gradient_norm"]) for step, values in logger.mirrored if "optim/gradient_norm" in values
    ]
    assert len(norms) == 5 and norms[0] != norms[1]
    expected = [(2, sum(norms[:2]) / 2), (4, sum(norms[2:4]) / 2), (5, norms[4])]
    assert [step for step, _ in logged] == [2, 4, 5]
    assert [value for _, value in logged] == pytest.approx([value for _, value in expected], rel=1e-5)


def test_cost_and_clock_are_mirrored_and_not_recorded(heard: Any) -> None:
    logger, _, lines = heard
    (last,) = [values for step, values in logger.mirrored if step == 5 and "cost/memory_mb" in values]
    assert last["cost/images_per_second"] > 0 and last["cost/memory_mb"] > 1 and last["images"] == 5 * 16
    assert logger.clock is not None and logger.clock() > 0
    recorded = {key for line in lines for key in line}
    assert not {key for key in recorded if key.startswith("cost/")} and "optim/gradient_norm" not in recorded


def test_lists_have_coordinates_of_their_length(heard: Any) -> None:
    logger, _, lines = heard
    lists = {key for line in lines for key, value in line.items() if isinstance(value, list)}
    assert (
        set(logger.axes) == lists >= {"train/loss_t", "val/loss_t", "sampler/p", "sampler/drawn", "sampler/objective"}
    )
    for length, axes in logger.axes.values():
        assert list(axes) == ["timestep", "log_snr"] and {len(values) for values in axes.values()} == {length}
        assert axes["timestep"] == [5.0, 15.0, 25.0, 35.0] and sorted(axes["log_snr"], reverse=True) == axes["log_snr"]


def test_labels_and_tags_name_the_parts(heard: Any) -> None:
    logger, _, _ = heard
    assert logger.tags == ["method:clts", "dataset:digits", "schedule:cosine"]
    assert (logger.config["method"], logger.config["options"]["sampler"]) == ("clts", "clts")
    assert logger.config["seed_group"].startswith("digits-clts-") and logger.config["max_steps"] == 5
    assert logger.better == {"val/loss": "lower"}


def test_without_clipping_there_is_no_norm() -> None:
    assert RunModule(Streams(0)).mean_gradient_norm() is None
