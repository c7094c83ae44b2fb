"""Eight digits learnt by heart on the command line, by dit_tiny and by a DiT of the user's own, a .py and a .yaml.

A denoiser that knows mean and variance s^2 of each pixel, but not which values go together, has at best the loss

    E (eps - eps_hat)^2 = a s^2 / (a s^2 + 1 - a),   a = alphas_cumprod,   averaged over pixels and timesteps

so one that ends well below it knows the images. At the start the output is 0 and the loss is E eps^2.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.main import main
from diffusion_lab.data import Digits, to_float
from diffusion_lab.diffusion import linear
from tests.harness import TINY, Child, differences, trained

DIT = '''
"""A transformer over 2 x 2 patches, modulated by time and label; every gate and the output begin at 0."""

import torch
from torch import nn


def zero(layer):
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.modulation = zero(nn.Linear(dim, 6 * dim))

    def forward(self, x, c):
        a, b, g, d, e, h = self.modulation(c)[:, None].chunk(6, dim=2)
        y = self.norm(x) * (1 + a) + b
        x = x + g * self.attention(y, y, y, need_weights=False)[0]
        return x + h * self.mlp(self.norm(x) * (1 + d) + e)


class OwnDiT(nn.Module):
    def __init__(self, in_channels, out_channels, image_size, num_classes, dim=64, depth=2):
        super().__init__()
        self.frequency = 10_000.0 ** (-torch.arange(32) / 32)
        self.into = nn.Linear(4 * in_channels, dim)
        self.position = nn.Parameter(0.02 * torch.randn((image_size // 2) ** 2, dim))
        self.time = nn.Sequential(nn.Linear(64, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.label = nn.Embedding(num_classes, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.out = zero(nn.Linear(dim, 4 * out_channels))

    def forward(self, x, t, label):
        angle = t.float()[:, None] * self.frequency
        c = self.time(torch.cat([angle.sin(), angle.cos()], dim=1)) + self.label(label)
        h = self.into(nn.functional.unfold(x, 2, stride=2).transpose(1, 2)) + self.position
        for block in self.blocks:
            h = block(h, nn.functional.silu(c))
        return nn.functional.fold(self.out(h).transpose(1, 2), x.shape[2:], 2, stride=2)
'''
EIGHT = """
import torch
from diffusion_lab.data import ArrayImages, Digits, ImageSource

class Eight(ImageSource):
    name, channels, image_size, num_classes = "eight", 1, 8, 8

    def train_size(self):
        return 32

    def load(self, split):
        digits = Digits().train()
        first = torch.tensor([int((digits.labels == k).nonzero()[0]) for k in range(8)]).repeat(4)
        return ArrayImages(digits.take(first), digits.labels[first])
"""
FILES = {
    "own_dit.py": DIT,
    "eight.py": EIGHT,
    "my_conf/network/own_dit.yaml": "_target_: own_dit.OwnDiT\n_partial_: true\ndim: 64\ndepth: 2\n",
    "my_conf/dataset/eight.yaml": "defaults: [base/images@_here_, _self_]\nsource: {_target_: eight.Eight}\n",
}
WORDS = (
    *("train", "--config-dir", "my_conf", "base=ddpm"),
    *("dataset=eight", "dataset.conditional=true", "dataset.label_dropout=0.1"),
    *("solver=guided", "solver.base.steps=4", "metrics=none", "max_steps=300", "batch_size=32", "optimizer.lr=0.005"),
    *("callbacks.ema.decays=[0.9]", "snapshot_every=300", "log_every=1", "trainer=cpu"),
)


def best_per_pixel() -> float:
    digits, a = Digits().train(), linear(1000).alphas_cumprod[:, None, None, None]
    first = [int((digits.labels == k).nonzero()[0]) for k in range(8)]
    signal = a * to_float(digits.take(first)).double().var(0, unbiased=False)
    return (signal / (signal + 1 - a)).mean().item()


@pytest.mark.learning
@pytest.mark.parametrize("network", ["own_dit", "dit_tiny"])
def test_eight_digits_are_learnt_by_heart(network: str, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def work() -> None:
        os.chdir(tmp_path)
        raise SystemExit(main([*WORDS, f"network={network}"]))

    Child(work, tmp_path / "log").succeed()
    (run,) = (tmp_path / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    (end,) = [line["val/loss"] for line in lines if "val/loss" in line]
    start = next(line["train/loss"] for line in lines if "train/loss" in line)
    assert end < 0.6 * best_per_pixel() < 0.6 * start and start == pytest.approx(1, abs=0.1)


@pytest.mark.slow
def test_a_killed_run_ends_as_an_uninterrupted_one(tmp_path: Path) -> None:
    def run(name: str, *kills: int, seed: int = 0) -> dict[str, Any]:
        words = [word for word in TINY if not word.startswith("network")]
        words += ["network=dit_tiny", "network.dim=16", "network.checkpointing=true", "max_steps=8", f"seed={seed}"]
        words += ["dataset.conditional=true", "dataset.label_dropout=0.5", "variance=learned_range"]
        return trained(compose_train(words, tmp_path / name), kills)

    straight = run("straight")
    assert differences(straight, run("killed", 4)) == []
    assert "weights" in differences(straight, run("other", seed=1))  # negative control
