"""The loss of a trained model as a function of its weights."""

import numpy as np
import pytest
import torch

from diffusion_lab.analyses import PerTimestep, Work
from diffusion_lab.diffusion import linear
from diffusion_lab.streams import Streams
from diffusion_lab.testing.analyses import tiny_update
from tests.analyses.models import Constant, source, trained

TIMESTEPS = (0, 100, 900)


@pytest.mark.parametrize("batch_size", [1, 2, 7, 256])
def test_the_losses_are_those_of_per_timestep(batch_size, tmp_path):
    """The same images and the same noise, in whatever pieces."""
    (model, _), work = tiny_update(), Work(tmp_path, Streams(3))
    objective = model.fixed_set_loss(TIMESTEPS, 5, work.normal, batch_size)
    expected = PerTimestep(images=5).run([model], work).data["losses"][0, :, TIMESTEPS, 0].T
    with torch.no_grad():
        assert np.allclose(objective.rows(), expected, rtol=1e-6)
        assert np.allclose(objective.loss(), expected.mean(0), rtol=1e-6)
        sizes = [part().numel() for part in objective.parts]
    assert sum(sizes) == 15 and max(sizes) <= max(batch_size, 3)  # an image is not divided among parts
    assert objective.names == ("t = 0", "t = 100", "t = 900")


def test_no_call_has_more_rows_than_the_batch_size(tmp_path):
    (model, _), rows = tiny_update(), []
    model.denoiser.network.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    model.fixed_set_loss(TIMESTEPS, 4, Work(tmp_path, Streams(0)).normal, 2).loss()
    assert sum(rows) == 12 and max(rows) == 2


def test_timesteps_are_scaled_to_the_schedule(tmp_path):
    model = trained(Constant(), source(), schedule=linear(50))
    names = model.fixed_set_loss((0, 10, 50, 100, 300, 500, 900), 2, Work(tmp_path, Streams(0)).normal).names
    assert names == ("t = 0", "t = 2", "t = 5", "t = 15", "t = 25", "t = 45")  # 0 and 10 are the same here


def test_it_follows_the_weights_and_is_differentiable(tmp_path):
    """The constant c in place of the noise: the loss is mean (c - eps)^2, its derivative 2 (c - mean eps)."""
    model, work = trained(Constant(0.3), source()), Work(tmp_path, Streams(0))
    objective = model.fixed_set_loss((0, 500), 4, work.normal)
    eps = torch.stack([work.normal((1, 4, 4), int(i)) for i in model.test_images(4)[0]])
    for value in (0.3, -1.0):
        model.denoiser.network.value.data.fill_(value)
        assert objective.loss().tolist() == pytest.approx([(value - eps).square().mean().item()] * 2, rel=1e-6)
    (slope,) = torch.autograd.grad(objective.loss()[1], model.denoiser.network.value)
    assert slope.item() == pytest.approx(2 * (-1.0 - eps.mean().item()), rel=1e-5)
    model.denoiser.network.double()
    assert objective.loss().dtype == torch.float64
