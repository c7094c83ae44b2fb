"""A sample is a function of (seed, id)."""

import pytest
import torch
from torch import nn

from diffusion_lab.data import to_uint8
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import SampleNoise, generate
from diffusion_lab.solvers import DDIM, DDPM
from diffusion_lab.streams import Streams

SHAPE = (1, 4, 4)
SOLVERS = [DDIM(steps=5), DDIM(steps=5, eta=1.0), DDPM(steps=5)]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.describe())
def test_the_batch_size_changes_no_bit(elementwise, solver):
    whole = generate(elementwise, solver, range(13), seed=0, shape=SHAPE, batch_size=13)
    assert whole.shape == (13, *SHAPE) and whole.dtype == torch.uint8
    for batch_size in (1, 4, 100):
        assert torch.equal(generate(elementwise, solver, range(13), 0, SHAPE, batch_size), whole)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: solver.describe())
def test_a_sample_depends_on_its_id_and_the_seed_alone(elementwise, solver):
    whole = generate(elementwise, solver, range(10), seed=3, shape=SHAPE)
    some = generate(elementwise, solver, [7, 2, 2, 9], seed=3, shape=SHAPE)
    assert torch.equal(some, whole[[7, 2, 2, 9]])
    other = generate(elementwise, solver, range(10), seed=4, shape=SHAPE)
    assert (other != whole).flatten(1).any(1).all()
    assert len(whole.flatten(1).unique(dim=0)) == 10


def test_the_global_generator_is_neither_read_nor_moved(elementwise):
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    first = generate(elementwise, DDPM(steps=5), range(4), 0, SHAPE)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(generate(elementwise, DDPM(steps=5), range(4), 0, SHAPE), first)


def test_a_network_agrees_between_batch_sizes_up_to_one_grey_level():
    """A real convolution may round differently in another batch; the latents are the same."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 1, 3, padding=1))
    network.forward = lambda x, t: nn.Sequential.forward(network, x)
    denoiser = Denoiser(network, linear(50), Epsilon(), FixedLarge())
    a, b = (generate(denoiser, DDIM(steps=5), range(12), 0, (1, 8, 8), size).int() for size in (12, 5))
    assert (a - b).abs().max() <= 1


def test_two_solvers_start_from_the_same_latents():
    noise = SampleNoise(5, range(3), SHAPE)
    assert torch.equal(noise.start(), SampleNoise(5, range(3), SHAPE).start())
    like = torch.zeros(3, *SHAPE, dtype=torch.float64)
    draws = [noise.start(), noise(0, like), noise(1, like)]
    assert draws[1].dtype == torch.float64
    flat = torch.stack([draw.flatten().float() for draw in draws])
    assert (torch.corrcoef(flat) - torch.eye(3)).abs().max() < 0.5 and not torch.equal(flat[0], flat[1])


@pytest.mark.parametrize("shape", [(1, 2, 2), (1, 3, 5), (1, 8, 8), (3, 32, 32)])
def test_every_latent_and_noise_is_the_draw_that_its_position_names(shape):
    streams, noise = Streams(3), SampleNoise(3, [5, 0, 8], shape)
    like = torch.zeros(3, *shape)
    for position, found in ((0, noise.start()), (1, noise(0, like)), (8, noise(7, like))):
        wanted = [streams.normal(shape, "eval", 2, i, position) for i in (5, 0, 8)]
        assert torch.equal(found, torch.stack(wanted))


def test_latents_are_standard_normal():
    x = SampleNoise(0, range(2000), (3, 4, 4)).start()
    assert abs(x.mean()) < 0.015 and abs(x.std() - 1) < 0.01
    assert abs((x[:-1] * x[1:]).mean()) < 0.015  # consecutive ids share nothing


def test_conditions_follow_their_ids(elementwise):
    def labels(ids):
        return {"label": torch.tensor([0, 3, 1, 2, 3])[list(ids)]}

    whole = generate(elementwise, DDIM(steps=5), range(5), 0, SHAPE, batch_size=2, conditions=labels)
    alone = generate(elementwise, DDIM(steps=5), [3], 0, SHAPE, conditions=labels)
    assert torch.equal(whole[3:4], alone)
    assert not torch.equal(whole, generate(elementwise, DDIM(steps=5), range(5), 0, SHAPE))


def test_pixels_are_what_to_pixels_makes_of_the_samples(elementwise):
    bytes_ = generate(elementwise, DDIM(steps=5), range(5), 0, SHAPE)
    large = generate(
        elementwise, DDIM(steps=5), range(5), 0, SHAPE, to_pixels=lambda x: to_uint8(x).repeat_interleave(2, 3)
    )
    assert torch.equal(large, bytes_.repeat_interleave(2, 3))


def test_a_diverged_model_is_named():
    class Broken(nn.Module):
        def forward(self, x_t, t):
            return x_t * torch.where(x_t.flatten(1).sum(1) > 0, float("nan"), 1.0)[:, None, None, None]

    denoiser = Denoiser(Broken(), linear(50), Epsilon(), FixedLarge())
    with pytest.raises(ValueError, match=r"of 8 samples are not finite \(ids \[\d+.*; the model has diverged"):
        generate(denoiser, DDIM(steps=5), range(8), 0, SHAPE)


def test_a_batch_of_nothing_is_refused(elementwise):
    with pytest.raises(ValueError, match="^batch_size=0 must be an integer >= 1"):
        generate(elementwise, DDIM(steps=5), range(8), 0, SHAPE, batch_size=0)
