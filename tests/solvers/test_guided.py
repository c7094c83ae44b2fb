"""Guidance around any solver."""

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.solvers import DDIM, DDPM, Guided, Heun


class Shrink(nn.Module):
    def forward(self, x, t, label):
        return x * (0.2 + 0.1 * label.to(x)[:, None, None, None])


@pytest.mark.parametrize("base", [DDIM(steps=6), DDPM(steps=6), Heun(steps=4)], ids=lambda s: s.describe())
def test_it_is_the_base_on_the_guided_model(base):
    torch.manual_seed(0)
    denoiser = Denoiser(Shrink(), linear(50), Epsilon(), FixedLarge(), null_label=3)
    x, label = torch.randn(4, 1, 2, 2), torch.tensor([0, 1, 2, 0])
    noise = {k: torch.randn(4, 1, 2, 2) for k in range(20)}
    given = {"noise": lambda k, like: noise[k], "label": label}
    guided = Guided(base, 2.0)(denoiser, x, **given)
    assert torch.equal(guided, base(denoiser.guided(2.0), x, **given))
    assert not torch.equal(guided, base(denoiser, x, **given))
    torch.testing.assert_close(Guided(base, 1.0)(denoiser, x, **given), base(denoiser, x, **given))


def test_the_guidance_of_some_channels_reaches_the_model():
    denoiser = Denoiser(Shrink(), linear(50), Epsilon(), FixedLarge(), null_label=3)
    base = DDIM(steps=6, clip=False)
    x, given = torch.ones(2, 4, 2, 2), {"noise": lambda k, like: like, "label": torch.tensor([0, 1])}
    three, four = (Guided(base, 2.0, channels=n)(denoiser, x, **given) for n in (3, 4))
    assert torch.equal(three[:, :3], four[:, :3]) and not torch.equal(three[:, 3], four[:, 3])
    assert torch.equal(three[:, 3], base(denoiser, x, **given)[:, 3])


def test_its_name_says_all():
    assert Guided(DDIM(steps=50), 1.5).describe() == "ddim-50-eta0-guided1.5"
    assert Guided(DDIM(steps=50), 1.5, channels=3).describe() == "ddim-50-eta0-guided1.5-first3"


def test_it_needs_a_model_whose_labels_were_withheld():
    with pytest.raises(ValueError, match="label_dropout"):
        Guided(DDIM(steps=6))(
            Denoiser(Shrink(), linear(50), Epsilon(), FixedLarge()),
            torch.zeros(1, 1, 2, 2),
            noise=lambda k, like: like,
            label=torch.zeros(1, dtype=torch.int64),
        )
    with pytest.raises(ValueError, match="^steps=99"):
        Guided(DDIM(steps=99)).check(linear(50))
    assert Guided(DDIM()).needs_null_label and not DDIM().needs_null_label
