"""The cost of a run: counts against hand-made ones, and that nothing is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from diffusion_lab.cli.checks.machine import checkpoint_bytes, checkpoints_kept
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.cost import describe_batch, evaluation_calls, flops, solver_calls
from diffusion_lab.cli.dry_run import duration, size
from diffusion_lab.cli.main import main
from diffusion_lab.cli.processes import world_size
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import Epsilon, FixedLarge
from tests.harness import Child


class _Convolution(nn.Module):
    """3 -> 5 channels, 3 x 3, without a bias: 2 * 27 * 5 FLOPs a pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 3, padding=1, bias=False, device="meta")

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_flops_of_a_convolution() -> None:
    forward, both = flops(_Convolution(), (3, 8, 8))
    assert forward == 2 * 27 * 5 * 64
    assert both == 2 * forward  # the input needs no gradient: the backward pass makes that of the weights alone


@pytest.mark.parametrize(
    ("overrides", "calls"),
    [(["solver=ddim", "solver.steps=7"], 7), (["solver=heun", "solver.steps=5"], 9), (["solver=ddpm"], 1000)],
)
def test_network_calls_of_the_solvers(composed, overrides: list[str], calls: int) -> None:
    assert solver_calls(composed(*overrides)) == calls


def test_evaluations_of_a_run(composed) -> None:
    data = ImageDataModule(Digits(), batch_size=64, features=object())
    cfg = composed("max_steps=1100", "snapshot_every=500", "metrics.num_samples=200", "solver.steps=7")
    assert evaluation_calls(cfg, data) == (3, 200 * 7)  # at 500, 1000 and at the end
    assert evaluation_calls(composed("snapshot_every=0"), data) == (0, 0)
    assert evaluation_calls(composed("~callbacks.generation"), data) == (0, 0)


def test_batch_processes_and_disk(composed) -> None:
    cfg = composed(
        "trainer=ddp_cpu", "batch_size=64", "accumulate=4", "max_steps=100", "keep_every=10", "checkpoint_every=5"
    )
    assert world_size(cfg) == 2
    assert describe_batch(cfg) == "64 images = 2 processes x 4 microbatches x 8"
    assert checkpoints_kept(cfg) == 2 + 10
    assert checkpoint_bytes(composed("callbacks.ema.decays=[0.9,0.99]"), 1000) == 4000 * (1 + 2 + 2)


def test_published_unet_has_its_published_size(composed) -> None:
    data = ImageDataModule(Digits(), batch_size=64)
    data.source.channels, data.source.image_size = 3, 32
    network = meta_network(composed("network=unet_ddpm"), data, Epsilon(), FixedLarge())
    assert sum(p.numel() for p in network.parameters()) == 35_746_307


def test_words() -> None:
    assert [duration(s) for s in (41, 200, 7500, 300000)] == ["41 s", "3 min 20 s", "2 h 05 min", "3.5 days"]
    assert [size(n) for n in (12, 1234, 34.5e6, 1.2e9)] == ["12 B", "1.23 kB", "34.5 MB", "1.2 GB"]


@pytest.mark.slow
def test_dry_run_of_a_run_and_of_a_sweep_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["network.base_channels=8", "solver.steps=4", "trainer.accelerator=cpu", "dry_run=true"]
    for arguments in (small, ["-m", "sampler=uniform,stratified", "seed=0,1", *small]):
        log = tmp_path / f"log-{len(arguments)}"
        Child(lambda arguments=arguments: exit_with(main(["train", *arguments])), log).succeed()
        text = log.read_text()
        assert "nothing was written" in text and "images/s" in text
        assert text.count("digits-") == (1 if "-m" not in arguments else 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"log-{n}" for n in (4, 7))


def exit_with(code: int) -> None:
    raise SystemExit(code)


@pytest.mark.slow
def test_checkpoint_size_is_that_of_a_real_one(tmp_path: Path, composed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["scale=smoke", "max_steps=2", "trainer.accelerator=cpu", f"hydra.run.dir={tmp_path}/run"]
    Child(lambda: exit_with(main(["train", *arguments])), tmp_path / "log").succeed()
    parameters = json.loads((tmp_path / "run" / "run.json").read_text())["parameters"]
    real = (tmp_path / "run" / "checkpoints" / "last.ckpt").stat().st_size
    assert checkpoint_bytes(composed("scale=smoke"), parameters) == pytest.approx(real, rel=0.1)
