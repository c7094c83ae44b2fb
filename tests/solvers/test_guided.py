"""Guidance around any solver."""

import pytest
import torch
from torch import nn

from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, LogNoise, NetworkTime, V, cosine, linear
from diffusion_lab.solvers import DDIM, DDPM, Euler, Guided, Heun, network_calls


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


class Noting(nn.Module):
    """Shrink, and the number of rows of each call."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def forward(self, x, t, label):
        self.rows.append(len(x))
        return x * (0.2 + 0.1 * label.to(x)[:, None, None, None]) + t.to(x)[:, None, None, None] / 100


class Falling(NetworkTime):
    """A time that falls with the noise, as SiT's does."""

    def values(self, schedule):
        return 1 - schedule.position


@pytest.mark.parametrize("time", [None, LogNoise(250.0), Falling()], ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("kept", [None, torch.arange(0, 50, 7)], ids=["all timesteps", "some"])
def test_only_the_noise_levels_of_the_interval_are_guided(time, kept):
    network = Noting()
    denoiser = Denoiser(network, cosine(50), Epsilon(), null_label=3, time=time)
    levels = denoiser.schedule.noise_level
    interval = levels[10].item(), levels[28].item()  # of which the lower one is outside
    limited, guided, plain = denoiser.guided(2.0, interval=interval), denoiser.guided(2.0), denoiser
    if kept is not None:
        limited, guided, plain, levels = *(one.respace(kept) for one in (limited, guided, plain)), levels[kept]
    torch.manual_seed(0)
    x, label = torch.randn(2, 1, 2, 2), torch.tensor([0, 1])
    for k, level in enumerate(levels.tolist()):
        t, inside = torch.full((2,), k), interval[0] < level <= interval[1]
        network.rows.clear()
        found = limited.estimate(x, t, label=label)
        assert network.rows == [4 if inside else 2]
        assert torch.equal(found.x0, (guided if inside else plain).estimate(x, t, label=label).x0)
    t = torch.tensor([0, len(levels) // 2])  # one row outside, one inside
    both = limited.estimate(x, t, label=label).x0
    torch.testing.assert_close(both[:1], plain.estimate(x, t, label=label).x0[:1])
    assert torch.equal(both[1:], guided.estimate(x, t, label=label).x0[1:])


def test_an_interval_saves_the_calls_outside_of_it_and_is_in_the_name():
    denoiser = Denoiser(Noting(), cosine(50), Epsilon(), null_label=3)
    levels = denoiser.schedule.noise_level
    solver = Guided(Euler(10), 1.5, interval=[float(levels[10]), float(levels[30])])
    kept = Euler(10).indices(denoiser.schedule)
    assert network_calls(solver, denoiser) == 10 + int(((kept > 10) & (kept <= 30)).sum()) > 10
    assert network_calls(Guided(Euler(10)), denoiser) == 20
    assert Guided(DDIM(steps=50), 1.5, interval=[0.3, 5]).describe() == "ddim-50-eta0-guided1.5-within0.3-5"


@pytest.mark.parametrize("interval", [[1.0], [2.0, 1.0], [-1.0, 1.0], "12", [0.0, 0.0]])
def test_an_interval_is_two_noise_levels(interval):
    with pytest.raises(ValueError, match=r"^interval(\[\d\])?=.*use two noise levels such as \[0.3, 5\]"):
        Guided(DDIM(), interval=interval)


def test_an_interval_holds_a_noise_level_of_a_model_whose_time_has_a_direction():
    class Constant(NetworkTime):
        def values(self, schedule):
            return torch.ones_like(schedule.position)

    with pytest.raises(ValueError, match="must hold a noise level of the model, 0.0"):
        Denoiser(Noting(), cosine(50), Epsilon(), null_label=3).guided(2.0, interval=(1e9, 2e9))
    with pytest.raises(ValueError, match="neither rises nor falls"):
        Denoiser(Noting(), cosine(50), Epsilon(), null_label=3, time=Constant()).guided(2.0, interval=(0.1, 2.0))


def test_other_steps_reach_the_base():
    assert Guided(DDIM(steps=50)).with_steps(7).describe() == "ddim-7-eta0-guided1.5"


def test_an_interval_beyond_the_noise_levels_of_the_model_is_found_before_it_samples():
    denoiser = Denoiser(nn.Identity(), cosine(40), V(), null_label=10)
    with pytest.raises(ValueError, match="interval"):
        Guided(DDIM(6), interval=[1e6, 2e6]).check_model(denoiser)
    Guided(DDIM(6), interval=[0.3, 2e6]).check_model(denoiser)
