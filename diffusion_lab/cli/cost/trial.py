"""What is measured on this machine: steps of the real loop, or the speed of the network alone, or of a convolution."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from omegaconf import DictConfig, open_dict
from torch import Tensor, nn

from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.cost.counts import Example, Looks, example
from diffusion_lab.cli.cost.memory import HALF
from diffusion_lab.cli.processes import world_size
from diffusion_lab.cli.train import facts
from diffusion_lab.metrics.sampling import generate
from diffusion_lab.streams import Streams
from diffusion_lab.training.validation_loss import validation_losses

WARM_UP = 2  # optimizer steps before the clock starts
APART = (
    "generation",
    "validation",
    "checkpoint",
    "progress",
)  # callbacks that are measured by themselves or cost nothing


@dataclass(frozen=True)
class Trial:
    """Seconds of the parts of a run, measured.

    Attributes:
        steps: how many were measured.
        step: seconds of one optimizer step of one process's share.
        sample: of one generated image, without its features.
        feature: of the features of one image.
        validation: of one image.
        start: to build the run and to take its first steps.
    """

    steps: int
    step: float
    sample: float
    feature: float
    validation: float
    start: float


class _Clock(Callback):
    """Times the steps after the warm-up, and ends training when the budget is spent."""

    def __init__(self, budget_s: float) -> None:
        self.budget, self.steps, self.seconds, self.before = budget_s, 0, 0.0, 0.0
        self._start: float | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.before = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step < WARM_UP:
            return
        wait(pl_module.device)
        now = time.perf_counter()
        if self._start is None:
            self._start, self._first = now, trainer.global_step
        self.steps, self.seconds = trainer.global_step - self._first, now - self._start
        trainer.should_stop = self.seconds > self.budget and self.steps >= 2


def take_steps(cfg: DictConfig, budget_s: float, looks: Looks) -> Trial:
    """Build one process's share of the run, take steps for half the budget, and try the rest with the other half."""
    small, began = copy.deepcopy(cfg), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, open_dict(small):
        small.paths.run_dir = folder
        small.batch_size = cfg.batch_size // world_size(cfg)
        small.max_steps = max(cfg.max_steps, WARM_UP + 2)  # so that something is left to measure
        small.trainer.devices, small.trainer.num_nodes, small.trainer.strategy = 1, 1, "auto"
        small.callbacks = {name: node for name, node in cfg.callbacks.items() if name not in APART}
        small.logger = {}
        small.compile = False  # to compile would take longer than there is for all of it
        clock = _Clock(budget_s / 2)
        run = build_run(small, facts(small), [clock])
        run.trainer.fit(run.module, datamodule=run.data)
        start = clock.before - began
        module, data = run.module.to(run.trainer.strategy.root_device), run.data  # Lightning takes it off a GPU
        module.eval()
        with run.trainer.strategy.precision_plugin.forward_context():
            sample, feature = _sample(small, module, data, looks, budget_s / 4)
            validation = _validation(module, data, looks)
    return Trial(clock.steps, clock.seconds / clock.steps, sample, feature, validation, start)


def _sample(cfg: DictConfig, module: Any, data: Any, looks: Looks, budget_s: float) -> tuple[float, float]:
    """Seconds of one sample: of the solver itself if the budget lets it, else of its network calls; and of features."""
    if not looks.generations:
        return 0.0, 0.0
    rows, device = min(looks.rows, 64), module.device
    given = example(data.conditions, rows, device)
    with torch.no_grad():
        call = clocked(lambda: given.ask(module.denoiser.network), device)
    sample = call * looks.calls / rows
    if call * looks.calls < budget_s:
        from diffusion_lab.cli.build import part

        whole = partial(
            generate,
            module.denoiser,
            part(cfg, "solver"),
            range(rows),
            seed=0,
            shape=data.shape,
            batch_size=rows,
            device=device,
            conditions=data.conditions.of_samples,
            to_pixels=data.source.to_pixels,
        )
        sample = clocked(whole, device, warm_up=False) / rows
    feature = 0.0
    if looks.measured and data.features is not None:
        images = torch.zeros(rows, *data.source.pixels().shape, dtype=torch.uint8)
        feature = clocked(lambda: data.features(images.to(device)), device) / rows
    return sample, feature


def _validation(module: Any, data: Any, looks: Looks) -> float:
    """Seconds of one validation image: noise, network and loss."""
    if not looks.validations:
        return 0.0
    rows, streams = looks.validation_rows, Streams(0)
    batch = next(iter(data.val_batches(rows)))
    cond = {key: value.to(module.device) for key, value in batch.cond.items()}
    total = max(looks.images, len(batch.image))

    def look() -> Tensor:
        return validation_losses(module.denoiser, batch.image.to(module.device), batch.ids, total, 0, streams, cond)[1]

    return clocked(look, module.device) / len(batch.image)


def network_rate(
    network: Callable[[], nn.Module], given: Example, work: float, device: torch.device, precision: str
) -> float:
    """FLOP/s of forward and backward of the network on random images.

    Args:
        network: builds it.
        given: its arguments, on the device.
        work: FLOPs of one forward and backward pass for these rows.
        device: where.
        precision: of the configuration.
    """
    with device:
        built = network().train()

    def step() -> None:
        with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
            loss = given.ask(built).float().square().mean()
        loss.backward()

    return work / clocked(step, device)


def convolution_rate(device: torch.device, precision: str) -> float:
    """FLOP/s of forward and backward of a 3x3 convolution, 128 channels at 32x32: the most to hope for."""
    rows, channels, side = (64 if device.type == "cuda" else 8), 128, 32
    layer = nn.Conv2d(channels, channels, 3, padding=1, device=device)
    x = torch.randn(rows, channels, side, side, device=device, requires_grad=True)

    def step() -> None:
        with torch.autocast(device.type, HALF.get(precision), enabled=precision in HALF):
            loss = layer(x).float().square().mean()
        loss.backward()

    return 3 * 2 * 9 * channels**2 * side**2 * rows / min(clocked(step, device) for _ in range(3))


def clocked(work: Callable[[], Any], device: torch.device, warm_up: bool = True) -> float:
    """Seconds of `work`, the second time if `warm_up`."""
    if warm_up:
        work()
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


@contextmanager
def threads(cfg: DictConfig) -> Iterator[None]:
    """As many threads as one process of the run has: those of the configuration, or its share of the cores."""
    before = torch.get_num_threads()
    shared = cfg.trainer.get("accelerator", "auto") == "cpu"
    torch.set_num_threads(cfg.get("threads") or max(1, before // (world_size(cfg) if shared else 1)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
