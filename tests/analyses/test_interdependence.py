"""Training inside one window of timesteps, where its effect is known."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import Interdependence, Work
from diffusion_lab.analyses.losses.interdependence import summary
from diffusion_lab.data import GaussianMixture
from diffusion_lab.diffusion import X0, linear
from diffusion_lab.streams import Streams
from tests.analyses.models import Constant, half_width, source, trained


class OneEach(nn.Module):
    """Answers a number of its own at each timestep: windows share nothing."""

    def __init__(self, count=50):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(count))

    def forward(self, x, t):
        return self.value[t].view(-1, 1, 1, 1).expand(x.shape)


def analysed(models, tmp_path, **given):
    small = {"num_windows": 5, "steps": 4, "batch_size": 4, "images": 3, "points": 10, "shown": [1, 5], "lr": 0.05}
    analysis = Interdependence(**(small | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(0)))


def after_adam(c, lr, steps):
    """Adam on (c - 1/2)^2, by its formulas."""
    m = v = 0.0
    for k in range(1, steps + 1):
        g = 2 * (c - 0.5)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        c -= lr * m / (1 - 0.9**k) / ((v / (1 - 0.999**k)) ** 0.5 + 1e-8)
    return c


def constant_data():
    return GaussianMixture([0.5], [1e-20], image_size=4, num_images=16, num_test_images=8)


def test_without_a_learning_rate_nothing_changes(tmp_path):
    _, result = analysed([trained(Constant(0.3), source())], tmp_path, lr=0)
    assert not result.data["change"].any() and not result.data["matrix"].any() and not result.data["net_error"].any()
    assert result.data["matrix"].shape == (1, 5, 5)


def test_timesteps_that_share_no_weight_do_not_interfere(tmp_path):
    """Only the diagonal changes, and it falls: the net change is s_w D_ww."""
    analysis, result = analysed([trained(OneEach(), constant_data(), X0(), linear(50))], tmp_path)
    matrix, own = result.data["matrix"][0], np.eye(5, dtype=bool)
    assert (matrix[own] < 0).all() and not matrix[~own].any()
    assert np.allclose(result.data["net"], matrix[own] / 5) and not result.data["outside"].any()
    assert result.facts["groups"][0]["useful"] == 5 and "falls for 5 and" in analysis.sentence(result)


def test_one_weight_for_all_timesteps_changes_all_alike(tmp_path):
    """The answer is one number c for data of 1/2: every window's loss is (c - 1/2)^2 before and after."""
    analysis, result = analysed([trained(Constant(0.1), constant_data(), X0(), linear(50))], tmp_path, lr=0.01)
    assert np.allclose(result.data["before"], 0.4**2)
    matrix = result.data["matrix"][0]
    assert np.allclose(matrix, matrix[:, :1], atol=1e-6) and (matrix < 0).all()
    assert np.allclose(matrix, (after_adam(0.1, 0.01, 4) - 0.5) ** 2 - 0.4**2, rtol=1e-3)
    said = analysis.sentence(result)
    percent = f"{100 * result.data['relative'].mean():+.2g}".replace("-", "\N{MINUS SIGN}")
    assert f"changes by {percent} % in the trained window and by {percent} % in the others" in said
    assert "Adam at 0.01 without a state" in said


def test_means_and_errors_by_hand():
    """Two windows of 1 and 3 timesteps, one point each; two repeats and two images."""
    before = np.array([[[2.0, 1.0], [4.0, 1.0]]])
    change = np.zeros((1, 2, 2, 2, 2))
    change[0, :, 0] = [[[-1.0, 3.0], [-1.0, 1.0]], [[-3.0, 3.0], [-3.0, 1.0]]]  # trained in the first window
    found = summary(before, change, np.array([0, 1, 4]), np.array([0, 1]))
    assert found["matrix"][0].tolist() == [[-2, 2], [0, 0]]
    assert found["relative"][0, 0] == pytest.approx([-2 / 3, 2])
    assert found["draws_error"][0, 0] == pytest.approx([1, 0]) and found["image_error"][0, 0] == pytest.approx([0, 1])
    assert found["standard_error"][0, 0] == pytest.approx([1, 1])
    assert found["inside"][0, 0] == -2 / 4 and found["outside"][0, 0] == 2 * 3 / 4 and found["net"][0, 0] == 1
    assert found["net_error"][0, 0] == pytest.approx(np.hypot(0.25, 0.75))


def test_windows_of_equal_loss_are_those_of_the_models(tmp_path):
    """x0 is predicted as 1/2 plus an error: nine tenths of the loss at t < 5."""
    model = OneEach()
    with torch.no_grad():
        model.value.fill_(0.5 + (1 / 45) ** 0.5 * 5**0.5 / 3)
        model.value[:5] = 0.5 + 5**0.5
    given = {"windows": "slots", "num_windows": 2, "shown": [1]}
    analysis, result = analysed([trained(model, constant_data(), X0(), linear(50))], tmp_path, **given)
    assert result.data["edges"][0] == 0 and result.data["edges"][1] < 5 and result.data["edges"][2] == 50
    assert "inside one of 2 windows of equal loss" in analysis.sentence(result)


def test_the_sentence_counts_what_data_has_and_seeds_are_one_group(tmp_path):
    models = [trained(Constant(value), source(), folder=f"run-s{i}") for i, value in enumerate((0.1, 0.2, 0.3))]
    for seed, model in enumerate(models):
        model.config = {"a": 1, "seed": seed}
    analysis, result = analysed(models, tmp_path, steps=2, repeats=2)
    (group,) = result.facts["groups"]
    net = result.data["net"]
    half = 4.302652729749464 * net.std(0, ddof=1) / 3**0.5  # Student's 97.5 % quantile of 2 degrees of freedom
    counts = (net.mean(0) > half).sum(), (net.mean(0) < -half).sum()
    numbers = re.search(r"for (\d+) of the 5 windows, falls for (\d+) and", analysis.sentence(result))
    assert tuple(map(int, numbers.groups())) == counts == (group["harmful"], group["useful"])
    (band, *_) = analysis.figure(result).axes[1].collections
    change = 100 * (result.data["change"].mean(1) / result.data["before"][:, None])[:, 0, -1]  # after the first window
    last = result.data["timesteps"][-1]
    assert max(y for t, y in band.get_paths()[0].vertices if t == last) == pytest.approx(
        change.mean() + half_width(change)
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"windows": "equal"}, "^windows=equal must be one of"),
        ({"num_windows": 1}, "^num_windows=1 must be an integer >= 2"),
        ({"lr": -1}, "^lr=-1 must"),
        ({"repeats": 1}, "^repeats=1 must"),
        ({"num_windows": 60}, "^analysis.num_windows=60 must be at most the 50 timesteps"),
        ({"shown": [6]}, r"^analysis.shown=\[6\] must be windows of 1 to 5"),
        ({"images": 100}, "^analysis.images=100 must be at most 64"),
    ],
)
def test_arguments_out_of_range(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        analysed([trained(Constant(), source())], tmp_path, **given)
