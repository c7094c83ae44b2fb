"""The tiny networks learn eight digits by heart, in fewer than 400 steps of Adam.

At a fixed noise level the best that can be done per pixel, from the mean and variance s^2 of each pixel alone, is

    E (eps - eps_hat)^2 = a s^2 / (a s^2 + 1 - a),   a = alphas_cumprod

so a loss well below it needs to know which values go together: the images.
"""

import pytest
import torch
import torch.nn.functional as F

from diffusion_lab.data import Digits, to_float
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from tests.networks.configured import configured

LEVELS = torch.tensor([100, 150, 200, 250])


class Eight:
    """The first training digit of each class 0..7, a network, and fixed noise for its loss."""

    def __init__(self, name: str, condition: str | None) -> None:
        torch.manual_seed(0)
        digits = Digits().train()
        first = [int((digits.labels == k).nonzero()[0]) for k in range(8)]
        self.x0 = to_float(digits.take(first))
        self.cond = {
            None: {},
            "label": {"label": torch.arange(8)},
            "low_res": {"low_res": F.interpolate(self.x0, size=2, mode="area")},
        }[condition]
        classes = {"num_classes": 10} if condition == "label" else {}
        network = configured(name, 1, 1, 8, **classes)
        self.denoiser = Denoiser(network, linear(1000), Epsilon(), FixedLarge())
        self.noise = torch.randn(len(LEVELS) * 8, 1, 8, 8)

    def train(self, steps: int, lr: float) -> None:
        rows = 32
        optimizer = torch.optim.Adam(self.denoiser.parameters(), lr=lr, betas=(0.9, 0.99), fused=True)
        cond = {key: value.repeat(rows // 8, *[1] * (value.ndim - 1)) for key, value in self.cond.items()}
        x0 = self.x0.repeat(rows // 8, 1, 1, 1)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = lr * min(1, (step + 1) / 20) * (1 - (step / steps) ** 2)
            t = LEVELS[torch.randint(len(LEVELS), (rows,))]
            optimizer.zero_grad()
            self.denoiser.loss(x0, torch.randn_like(x0), t, **cond).native.mean().backward()
            optimizer.step()

    @torch.no_grad()
    def loss(self, shift: int = 0) -> float:
        """Mean over the levels; image i is given the condition of image i - shift."""
        n = len(LEVELS)
        cond = {k: v.roll(shift, 0).repeat(n, *[1] * (v.ndim - 1)) for k, v in self.cond.items()}
        t = LEVELS.repeat_interleave(8)
        return self.denoiser.loss(self.x0.repeat(n, 1, 1, 1), self.noise, t, **cond).native.mean().item()

    def best_per_pixel(self) -> float:
        a = self.denoiser.schedule.alphas_cumprod[LEVELS][:, None, None, None]
        signal = a * self.x0.double().var(0, unbiased=False)
        return (signal / (signal + 1 - a)).mean().item()


@pytest.mark.learning
@pytest.mark.parametrize(
    ("name", "condition", "steps", "lr"),
    [
        ("unet_tiny", None, 100, 3e-3),
        ("unet_tiny", "label", 100, 3e-3),
        ("adm_tiny", None, 100, 3e-3),
        ("adm_tiny", "label", 100, 3e-3),
        ("adm_sr_tiny", "low_res", 100, 3e-3),
        ("uvit_tiny", None, 390, 5e-3),
        ("uvit_tiny", "label", 390, 5e-3),
        ("dit_tiny", "label", 200, 5e-3),
    ],
)
def test_eight_digits_are_learnt_by_heart(name, condition, steps, lr):
    eight = Eight(name, condition)
    before = eight.loss()
    eight.train(steps, lr)
    after = eight.loss()
    assert after < 0.6 * eight.best_per_pixel() < 0.6 * before
    if condition is not None:
        assert eight.loss(shift=1) > 2 * after


def test_the_start_is_no_better_than_knowing_nothing():
    """Negative control: an output of 0 has the loss E eps^2 = 1, above the best per pixel."""
    eight = Eight("adm_tiny", None)
    assert eight.loss() == pytest.approx(eight.noise.square().mean().item()) and eight.loss() > eight.best_per_pixel()
