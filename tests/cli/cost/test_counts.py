"""What is counted on the meta device, against hand-made numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from diffusion_lab.cli.build_model import build_module
from diffusion_lab.cli.checks.machine import checkpoint_bytes, checkpoints_kept, optimizer_states
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.cost import cost
from diffusion_lab.cli.cost.counts import count_beside, flops, rows_per_pass, solver_calls
from diffusion_lab.cli.dry_run import describe_batch
from diffusion_lab.cli.processes import world_size
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.streams import Position
from tests.data.fakes import conditions_of


class _Convolution(nn.Module):
    """3 -> 5 channels, 3 x 3, without a bias: 2 * 27 * 5 FLOPs a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 3, padding=1, bias=False, device="meta")

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_flops_of_a_convolution() -> None:
    forward, both = flops(_Convolution(), conditions_of((3, 8, 8)))
    assert forward == 2 * 27 * 5 * 64
    assert both == 2 * forward  # the input needs no gradient: the backward pass makes that of the weights alone


@pytest.mark.parametrize(
    ("overrides", "calls"),
    [
        (["solver=ddim", "solver.steps=7"], 7),
        (["solver=guided", "solver.base.steps=7"], 14),
        (["solver=heun", "solver.steps=5"], 9),
        (["solver=ddpm"], 1000),
    ],
)
def test_network_calls_of_the_solvers(composed, overrides: list[str], calls: int) -> None:
    assert solver_calls(composed(*overrides)) == calls


@pytest.mark.parametrize(
    ("overrides", "rows"),
    [
        (["sampler=uniform"], 0),
        (["sampler=learned_beta"], 3 * 2 * (100 + 3 * 16)),  # at steps 0, 40 and 80; a quarter of 64 rows
        (["sampler=learned_beta_released"], 3 * 2 * (1000 + 3 * 64)),
        (["sampler=gradient_variance", "sampler.every=500", "sampler.first=40"], 3 * 2 * 20 * 32),  # at 40 and 80
    ],
)
def test_rows_that_the_sampler_looks_at(composed, overrides: list[str], rows: int) -> None:
    cfg = composed(*overrides, "max_steps=81", "~callbacks.generation", "~callbacks.validation", "batch_size=64")
    assert count_beside(cfg, ImageDataModule(Digits(), batch_size=64)).calls == rows


def test_a_wrapped_sampler_looks_at_as_many_rows(composed) -> None:
    cfg = composed("sampler=mixture", "~callbacks.generation", "~callbacks.validation", "max_steps=81")
    cfg.sampler.base = composed("sampler=gradient_variance", "sampler.every=500", "sampler.first=40").sampler
    assert count_beside(cfg, ImageDataModule(Digits(), batch_size=64)).calls == 2 * 3 * 20 * 32


@pytest.mark.parametrize(
    ("overrides", "samples", "validations"),
    [
        ([], 200 + 2 * 64, 3),  # pictures at 500 and 1000, metrics at the end
        (["metrics_every=1000"], 2 * 200 + 64, 3),  # metrics at 1000 and the end
        (["metrics=none"], 3 * 64, 3),
        (["snapshot_every=0"], 200, 1),
        (["snapshot_every=0", "metrics=none"], 0, 1),
        (["~callbacks.generation"], 0, 3),
        (["callbacks.validation=null"], 200 + 2 * 64, 0),
    ],
)
def test_calls_beside_the_steps_of_a_run(composed, overrides: list[str], samples: int, validations: int) -> None:
    data = ImageDataModule(Digits(), batch_size=64, features=SimpleNamespace(has_classes=True))
    words = [] if "metrics=none" in overrides else ["metrics.num_samples=200"]
    cfg = composed("max_steps=1100", "snapshot_every=500", "solver.steps=7", *words, *overrides)
    beside = count_beside(cfg, data)
    assert beside.calls == samples * 7 + validations * 360 and beside.checkpoints == 3
    assert count_beside(composed("callbacks.checkpoint=null"), data).checkpoints == 0


@pytest.mark.parametrize(
    ("names", "calls"),
    [
        ("excess_loss", 24 * 200 + 64 * 7),  # levels of each image, and a grid
        ("bits_per_dim,sample_variance", 1000 * 200 + 200 * 7),
    ],
)
def test_metrics_that_call_the_model(composed, names: str, calls: int) -> None:
    words = [f"metrics.names=[{names}]", "metrics.num_samples=200", "callbacks.validation=null", "solver.steps=7"]
    assert count_beside(composed("snapshot_every=0", *words), ImageDataModule(Digits(), batch_size=64)).calls == calls


@pytest.mark.parametrize(("method", "calls"), [("ddpm", 0), ("self_conditioning", 1), ("meanflow", 3)])
def test_calls_of_a_step_without_gradients(composed, method: str, calls: int) -> None:
    """Counted in the step itself, on a batch of zeros."""
    cfg = composed(f"method={method}")
    parts = RunParts(cfg)
    module: Any = build_module(parts)
    data = parts["dataset"]
    image, cond = data.conditions.blank(1, "cpu")
    module._position = Position(0)
    with FlopCounterMode(display=False) as counter:
        module.losses(module.pair(image, cond)).objective.sum().backward()
    counted, _ = cost._count(cfg, data)
    trained = counted.training - calls * counted.forward
    assert (counter.get_total_flops() - trained) / counted.forward == pytest.approx(calls, abs=0.1)


def test_processes_share_the_samples(composed) -> None:
    data = ImageDataModule(Digits(), batch_size=64, features=SimpleNamespace(has_classes=True))
    cfg = composed("trainer=ddp_cpu", "metrics.num_samples=301", "callbacks.validation=null")
    assert count_beside(cfg, data).rows == 151


def test_batch_processes_and_disk(composed) -> None:
    cfg = composed(
        "trainer=ddp_cpu", "batch_size=64", "accumulate=4", "max_steps=100", "keep_every=10", "checkpoint_every=5"
    )
    assert world_size(cfg) == 2
    assert describe_batch(cfg) == "64 images = 2 processes x 4 microbatches x 8"
    assert rows_per_pass(cfg) == 8
    assert checkpoints_kept(cfg) == 2 + 10
    assert checkpoint_bytes(composed("callbacks.ema.decays=[0.9,0.99]"), 1000) == 4000 * (1 + 2 + 2)


def test_optimizer_states_are_those_of_the_optimizer(composed) -> None:
    """Adam keeps two moments, plain descent nothing, momentum one."""
    descent = ["optimizer._target_=torch.optim.SGD", "~optimizer.betas", "~optimizer.eps", "~optimizer.fused"]
    assert optimizer_states(composed()) == 2
    assert optimizer_states(composed("optimizer=adamw")) == 2
    assert optimizer_states(composed(*descent)) == 0
    assert optimizer_states(composed(*descent, "+optimizer.momentum=0.9")) == 1


def test_published_unet_has_its_published_size(composed) -> None:
    parts = RunParts(composed("network=unet_ddpm"))
    source = parts["dataset"].source
    source.channels, source.image_size = 3, 32
    network = meta_network(parts)
    assert sum(p.numel() for p in network.parameters()) == 35_746_307


def test_a_conditional_network_is_not_taken_for_an_unconditional_one(composed) -> None:
    """Equal networks are counted once; the embedding of labels is one parameter tensor more."""
    plain, labelled = (
        cost._count(cfg, part(cfg, "dataset"))[0].parameters
        for cfg in (composed("network=adm_tiny"), composed("network=adm_tiny", "dataset.conditional=true"))
    )
    assert labelled - plain == 10 * 4 * 16  # classes x time features
