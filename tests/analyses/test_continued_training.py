"""A model that is trained on inside an analysis."""

import torch
from torch import nn

from diffusion_lab.analyses import Work
from diffusion_lab.analyses.weights.continued_training import Continued, draw
from diffusion_lab.streams import Streams
from diffusion_lab.testing import same
from diffusion_lab.testing.analyses import tiny_update
from diffusion_lab.training import Continuation


def test_the_model_stays_as_it_is(tmp_path):
    model, work = tiny_update()[0], Work(tmp_path, Streams(0))
    before = {name: value.clone() for name, value in model.denoiser.state_dict().items()}
    copied = Continued(model)
    for k in range(3):
        copied.step(draw(model, work, 4, (0, 1000), k))
    assert same(before, model.denoiser.state_dict()) and not model.denoiser.training
    assert not same(before, copied.denoiser.state_dict()) and all(p.grad is None for p in model.denoiser.parameters())


def test_a_batch_is_a_function_of_seed_and_position_and_stays_in_its_window(tmp_path):
    model = tiny_update()[0]
    one, again, other = (draw(model, Work(tmp_path, Streams(s)), 500, (37, 56), 1, 2) for s in (0, 0, 1))
    assert same(one._asdict(), again._asdict()) and not torch.equal(one.eps, other.eps)
    assert sorted(set(one.t.tolist())) == list(range(37, 56))
    assert one.x0.shape == one.eps.shape == (500, 1, 4, 4)


def test_the_state_goes_on_where_it_was_and_its_rate_stays():
    """Two steps at once are one step, its saved state, and another; a parameter behind the model's is left out."""

    def step(optimizer, weights):
        for i, weight in enumerate(weights):
            weight.grad = torch.full_like(weight, float(i + 1))
        optimizer.step()

    weights = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))]
    whole = torch.optim.Adam(weights, lr=0.1, betas=(0.5, 0.9))
    step(whole, weights)
    copies = [nn.Parameter(weight.detach().clone()) for weight in weights[:1]]
    continuation = Continuation(lambda p: torch.optim.Adam(p, lr=0.3), lambda: whole.state_dict())
    optimizer, fresh = continuation.optimizer(copies)
    assert not fresh and optimizer.param_groups[0]["lr"] == 0.1
    step(whole, weights)
    step(optimizer, copies)
    assert torch.equal(copies[0], weights[0])
    optimizer, fresh = continuation.optimizer(copies, fresh=True)
    assert fresh and optimizer.param_groups[0]["lr"] == 0.3 and not optimizer.state
