"""Samples of a loaded model."""

import torch

from diffusion_lab.metrics.sampling import generate
from diffusion_lab.solvers import DDPM
from tests.analyses.models import Optimal, source, trained


def test_a_sample_is_a_function_of_its_number_and_the_seed():
    data = source()
    model = trained(Optimal(data, trained(torch.nn.Identity(), data).denoiser.schedule), data)
    solver = DDPM(clip=False)
    whole = model.samples(range(6), 3, solver)
    assert whole.shape == (6, 1, 4, 4) and whole.dtype == torch.uint8
    assert torch.equal(whole, generate(model.denoiser, solver, range(6), 3, (1, 4, 4)))
    assert torch.equal(model.samples([4, 1], 3, solver, batch_size=1), whole[[4, 1]])
    assert not torch.equal(model.samples(range(6), 4, solver), whole)


def test_the_conditions_of_a_sample_follow_its_number():
    """Sample i of two classes is of class i mod 2."""

    class Label(torch.nn.Module):
        def forward(self, x, t, label):
            seen.append(label.tolist())
            return torch.zeros_like(x)

    seen = []
    data = source()
    model = trained(Label(), data)
    model.data.conditions.conditional = True
    model.data.source.num_classes = 2
    model.samples([5, 2], 0, DDPM(steps=2, clip=False))
    assert seen == [[1, 0], [1, 0]]
