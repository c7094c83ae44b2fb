"""Time and what it is based on, where the run cannot be tried: against closed forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from diffusion_lab.cli.checks import machine
from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.cost import cost as module
from diffusion_lab.cli.cost.cost import Cost, cost_of
from diffusion_lab.cli.cost.devices import GPUS, peak
from tests.cli.cost.test_memory import resident_bytes

PRESETS = conf_dir() / "experiment"
EXPERIMENTS = sorted(str(path.relative_to(PRESETS).with_suffix("")) for path in PRESETS.rglob("*.yaml"))
OF_GANS = ("clts_mdlrc/table1_dcgan", "clts_mdlrc/table1_biggan")  # their cost is not estimated


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (machine, module):
        monkeypatch.setattr(place, "gpu_count", lambda: 0)


def of(cfg) -> Cost:
    return cost_of(cfg, 0.1, missing=True)


def test_peaks() -> None:
    assert peak("A100", "bf16-mixed") == peak("A100", "16-mixed") == 312e12
    assert peak("A100", "32-true") == 156e12
    assert peak("V100", "bf16-mixed") == peak("V100", "32-true") < peak("V100", "16-mixed")
    assert all(gpu.full <= gpu.half for gpu in GPUS.values())


def test_time_on_gpus_that_are_elsewhere(composed, no_gpu: None) -> None:
    cfg = composed("trainer=ddp", "trainer.devices=8", "precision=bf16-mixed", "cost.device=H100", "max_steps=1000")
    cfg.cost.utilization = 0.25
    cost = of(cfg)
    reach = 8 * 0.25 * 989.5e12
    assert cost.step == pytest.approx(64 * cost.counts.training / reach)
    assert cost.training_seconds == pytest.approx(1000 * cost.step)
    sampling = cost.counts.beside.calls * cost.counts.forward / reach
    assert sampling < cost.evaluation_seconds < sampling + 1  # the rest writes checkpoints
    assert cost.gpus == 8
    assert "8 x H100 at 247.4 TFLOP/s (assumed 25% of its peak)" in cost.basis
    alone = of(composed("trainer=gpu", "precision=bf16-mixed", "batch_size=8"))
    assert cost.memory.state - alone.memory.state == 4 * cost.counts.parameters  # DDP's copies of the gradients


def test_what_the_sampler_looks_at_is_part_of_the_cost(composed, no_gpu: None) -> None:
    """Every step has a policy update here: 2 (40 + 3 * 16) rows without gradients."""
    words = [
        "trainer=gpu",
        "trainer.devices=1",
        "schedule.num_timesteps=40",
        "batch_size=16",
        "max_steps=100",
        "solver.steps=40",
    ]
    every_step = ["sampler=learned_beta", "sampler.every=1", "sampler.grid_stride=1", "sampler.reward_every=1"]
    plain, learned = of(composed(*words)), of(composed(*words, *every_step))
    more = 100 * 2 * (40 + 3 * 16) * plain.counts.forward
    assert learned.counts.flops_of(1600) - plain.counts.flops_of(1600) == more
    rate = 1600 * plain.counts.training / plain.training_seconds
    assert learned.seconds - plain.seconds == pytest.approx(more / rate)


def test_time_on_a_cpu_without_the_data(composed, no_gpu: None) -> None:
    """At the rate of a convolution, which is measured; the FLOPs divided by it are the time."""
    cost = of(composed("trainer=cpu"))
    assert cost.basis.startswith("estimated: ") and "of a convolution's" in cost.basis and cost.gpus == 0
    rate = 64 * cost.counts.training / cost.step
    assert f"{rate / 1e9:.4g} GFLOP/s" in cost.basis


def test_fsdp_shares_the_weights(composed, no_gpu: None) -> None:
    """Weights, gradients, two moments and one average on each of four GPUs, or a quarter of each and no buckets."""
    ddp, fsdp = (of(composed("trainer=ddp", "trainer.devices=4", f"trainer.strategy={s}")) for s in ("ddp", "fsdp"))
    weights = 4 * ddp.counts.parameters
    assert ddp.memory.state == (5 + 1) * weights and fsdp.memory.state == 5 * weights / 4


DITS = [("dit_b", 768, 12, 130_315_808), ("dit_xl", 1152, 28, 674_834_720)]


@pytest.mark.parametrize(("network", "dim", "depth", "parameters"), DITS)
def test_the_gpu_hours_of_dit(composed, no_gpu: None, network: str, dim: int, depth: int, parameters: int) -> None:
    """256 tokens: 12 D^2 products per token and block, 2 x 256 D of attention, 6 D^2 per image for the modulation."""
    cfg = composed("experiment=dit_imagenet256", f"network={network}")
    cost = of(cfg)
    block = 256 * (12 * dim**2 + 2 * 256 * dim) + 6 * dim**2
    ends = 256 * dim * (4 * 2**2 + 8 * 2**2) + 2 * dim**2 + (256 + dim) * dim
    assert cost.counts.parameters == parameters  # published: 8 channels, 1000 classes and the null label
    assert cost.counts.forward == 2 * (depth * block + ends)
    reach = 0.3 * peak("A100", "32-true")
    assert cost.training_seconds == pytest.approx(400_000 * 256 * cost.counts.training / reach)
    assert 2.99 < cost.counts.training / cost.counts.forward <= 3
    assert cost.counts.beside.calls == 4 * (50_000 * 250 + cfg.dataset.val_images)


@pytest.mark.pages
@pytest.mark.parametrize("experiment", [name for name in EXPERIMENTS if name not in OF_GANS])
def test_every_experiment_has_a_cost_without_its_data_and_gpus(composed, no_gpu: None, experiment: str) -> None:
    cost = of(composed(f"experiment={experiment}"))
    assert cost.counts.parameters > 0 and cost.memory.peak > 0 and cost.seconds > 0


def test_the_size_of_the_network_and_the_batch_cost_no_memory_here(composed, no_gpu: None, tmp_path: Path) -> None:
    """About ADM's ImageNet-128: 370 million parameters, 256 images, classes whose folders are elsewhere."""
    before = resident_bytes()
    cost = of(composed(*LARGE, f"dataset.source.root={tmp_path}/none"))
    assert cost.counts.parameters > 3.5e8 and cost.memory.peak > 2e10
    assert resident_bytes() - before < 5e8


LARGE = [
    "dataset=image_folder",
    "dataset.source.image_size=128",
    "dataset.conditional=true",
    "network=unet_ddpm",
    "network.base_channels=256",
    "network.channel_multipliers=[1,1,2,3,4]",
    "network.attention_resolutions=[32,16,8]",
    "batch_size=256",
    "trainer=ddp",
    "trainer.devices=8",
    "precision=bf16-mixed",
]
