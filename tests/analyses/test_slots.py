"""Slots of equal loss of a model, where its losses are known."""

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import Slots, Work
from diffusion_lab.data import GaussianMixture
from diffusion_lab.diffusion import X0, linear
from diffusion_lab.streams import Streams
from tests.analyses.models import Constant, source, trained

EDGES = [0, 5, 13, 23, 37, 56, 82, 120, 177, 277, 1000]


class Misses(nn.Module):
    """Answers 0.5 plus the root of a given loss at each timestep."""

    def __init__(self, loss):
        super().__init__()
        self.register_buffer("error", loss.sqrt().float())

    def forward(self, x, t):
        return (0.5 + self.error[t]).view(-1, 1, 1, 1).expand(x.shape)


def model_with(loss, **given):
    """Predicts x0 of data that are 0.5 everywhere, and has this loss (T,) at each timestep."""
    data = GaussianMixture([0.5], [1e-20], image_size=2, num_images=4, num_test_images=4)
    return trained(Misses(loss), data, X0(), linear(len(loss)), **given)


def slots_of(models, tmp_path, **given):
    analysis = Slots(**({"images": 2} | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(0)))


def test_ten_equal_sums_give_the_papers_edges(tmp_path):
    """Xie & Agam, Table 1: a loss that is constant in each of their slots, with the same sum in all."""
    size = torch.tensor(EDGES).diff()
    analysis, result = slots_of([model_with((0.1 / size).repeat_interleave(size))], tmp_path)
    assert result.data["edges"].tolist() == [[EDGES]] and result.facts["curves"][0]["edges"] == EDGES
    assert np.allclose(result.facts["curves"][0]["share"], 0.1, rtol=1e-4)
    said = analysis.sentence(result)
    assert said.startswith(f"The slots of equal loss have the edges {EDGES}: the first has 5 of the 1000 timesteps, ")
    assert said.endswith("the last 723, and each 10 to 10 % of the loss.")


def test_the_share_of_each_slot_by_hand(tmp_path):
    """Losses 66, 22 and 22 times 1/2 cannot be cut in half: 66 of 99 lie in the first timestep."""
    loss = torch.full((24,), 0.5)
    loss[:2] = torch.tensor([66.0, 22.0])
    _, result = slots_of([model_with(loss)], tmp_path, num_slots=2)
    assert result.data["edges"].tolist() == [[[0, 1, 24]]]
    assert np.allclose(result.facts["curves"][0]["share"], [2 / 3, 1 / 3], rtol=1e-6)


def test_seeds_are_one_curve(tmp_path):
    """The slots of the mean loss; and how far those of single seeds lie apart."""
    first, second = torch.ones(40), torch.ones(40)
    first[:20], second[:20] = 3.0, 1.0
    models = [model_with(loss, folder=f"digits-uniform-s{seed}") for seed, loss in enumerate((first, second))]
    for seed, model in enumerate(models):
        model.config = {"seed": seed, "sampler": "uniform"}
    analysis, result = slots_of(models, tmp_path, num_slots=2)
    assert result.data["edges"].tolist() == [[[0, 13, 40]], [[0, 20, 40]]]
    (curve,) = result.facts["curves"]  # mean losses 2 and 1: half of 60 is reached after 15 timesteps
    assert curve["edges"] == [0, 15, 40] and curve["over_seeds"] == {"first_end": [13, 20], "last_start": [13, 20]}
    assert "(of 2 seeds alone the first slot ends before t = 13 to 20, " in analysis.sentence(result)


def test_a_table_and_a_curve_for_each_checkpoint(tmp_path):
    flat, steep = torch.ones(50), torch.linspace(2.0, 0.1, 50)
    models = [model_with(loss, step=step) for step, loss in enumerate((flat, steep), start=1)]
    analysis, result = slots_of(models, tmp_path, num_slots=5)
    assert result.facts["curves"][0]["edges"] == [0, 10, 20, 30, 40, 50]
    edges = result.facts["curves"][1]["edges"]
    figure = analysis.figure(result)
    (table,) = figure.axes[1].tables
    cells = {place: cell.get_text().get_text() for place, cell in table.get_celld().items()}
    assert [cells[0, k] for k in range(3)] == ["slot", "step 1", "step 2"]
    assert [cells[k, 1] for k in (1, 5)] == ["0 to 9", "40 to 49"]
    assert [cells[k, 2] for k in (1, 5)] == [f"0 to {edges[1] - 1}", f"{edges[4]} to 49"]
    said = analysis.sentence(result)
    assert f"of step 1 have the edges {[0, 10, 20, 30, 40, 50]}" in said and f"of step 2 have the edges {edges}" in said


def test_more_slots_than_timesteps():
    with pytest.raises(ValueError, match="^analysis.num_slots=60 must be at most the 50 timesteps"):
        Slots(60).check([trained(Constant(), source())])


@pytest.mark.parametrize(("name", "value"), [("num_slots", 0), ("images", 1), ("batch_size", 0)])
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value} must be an integer >="):
        Slots(**{name: value})
