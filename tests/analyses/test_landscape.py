"""The loss on a plane of weights, where it is known."""

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import Landscape, PerTimestep, Work
from diffusion_lab.analyses.weights.landscape import shape_of
from diffusion_lab.analyses.weights.weight_space import cosine, directions, displaced
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.streams import Streams
from diffusion_lab.testing.analyses import tiny_update
from tests.analyses.models import source, trained

T = (0, 500)


class Linear(nn.Module):
    """One convolution without a bias: the loss is quadratic in its weights."""

    def __init__(self, seed=0):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        with torch.no_grad():
            self.conv.weight.copy_(torch.linspace(-0.4, 0.6, 9).view(1, 1, 3, 3))

    def forward(self, x, t):
        return self.conv(x)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Conv2d(4, 3, 1), nn.Conv2d(3, 1, 1), nn.Conv2d(1, 2, 1)
    )


def result_of(models, tmp_path, **given):
    analysis = Landscape(**({"timesteps": T, "images": 4, "points": 5} | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(0)))


def test_a_quadratic_loss_has_the_surface_of_its_closed_form(tmp_path):
    """The answer is linear in the weights: eps_hat = c + a u + b v, so L = mean (c - eps + a u + b v)^2."""
    model, work = trained(Linear(), source()), Work(tmp_path / "w", Streams(0))
    analysis, result = result_of([model], tmp_path, points=7, radius=2.0)
    ids, x0, _ = model.test_images(4)
    eps = torch.stack([work.normal((1, 4, 4), int(i)) for i in ids]).double()
    for k, t in enumerate((0, 25)):
        steps = torch.full((4,), t)
        x_t = model.denoiser.schedule.perturb(x0, eps.float(), steps).double()
        answers = [
            nn.functional.conv2d(x_t, way["network.conv.weight"].double(), padding=1)
            for way in (
                {"network.conv.weight": model.denoiser.network.conv.weight.detach()},
                *directions(model.module, work.normal),
            )
        ]
        for i, a in enumerate(result.data["offset"]):
            for j, b in enumerate(result.data["offset"]):
                expected = (answers[0] - eps + a * answers[1] + b * answers[2]).square().mean().item()
                assert result.data["surface_0"][i, j, k] == pytest.approx(expected, rel=1e-5)
    assert result.data["minima"][0] <= 1 and result.data["concave"].tolist() == [0]
    assert result.data["average"][0] == pytest.approx(result.data["surface_0"].mean(2))
    said = analysis.sentence(result)
    rise, error = (result.data["border"] - result.data["centre"])[0], result.data["border_rise_standard_error"][0]
    assert f"rises by {plus_minus(rise, 2 * error)}" in said and f"the loss is {result.data['centre'][0]:.3g}" in said
    assert analysis.figure(result).axes


def test_the_centre_is_the_loss_of_per_timestep_and_the_weights_come_back(tmp_path):
    (model, _) = tiny_update()
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    _, result = result_of([model], tmp_path)
    expected = PerTimestep(images=4).run([model], Work(tmp_path / "t", Streams(0))).data["losses"][0, :, T, 0]
    assert np.allclose(result.data["surface_0"][2, 2], expected.mean(1), rtol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.module.state_dict().items())


def test_each_filter_has_the_length_of_the_weights_and_the_directions_are_orthogonal():
    torch.manual_seed(0)
    module, streams = network(), Streams(0)
    ways = directions(module, lambda shape, *position: streams.normal(shape, "analysis", *position))
    for way in ways:
        assert all(parameter.ndim < 2 for name, parameter in module.named_parameters() if name not in way)
        assert set(way) == {"0.weight", "2.weight", "3.weight", "4.weight"}  # no bias and no normalisation
    for name in ("0.weight", "2.weight", "3.weight"):
        theta = module.get_parameter(name).detach().flatten(1)
        one, other = (way[name].flatten(1) for way in ways)
        assert torch.allclose(one.norm(dim=1), theta.norm(dim=1)) and torch.allclose(
            other.norm(dim=1), theta.norm(dim=1)
        )
        assert ((one * other).sum(1).abs() <= 1e-5 * theta.square().sum(1)).all()
    assert ways[1]["4.weight"].abs().max() == 0 < ways[0]["4.weight"].abs().min()  # filters of one number
    assert abs(cosine(*ways)) < 1e-6 and cosine(ways[0], ways[0]) == pytest.approx(1)
    start = module.state_dict()
    moved = displaced(start, ways, (2.0, -1.0))
    assert torch.allclose(moved["0.weight"], start["0.weight"] + 2 * ways[0]["0.weight"] - ways[1]["0.weight"])


def test_the_shape_of_known_surfaces():
    x, y = np.meshgrid(np.linspace(-1, 1, 21), np.linspace(-1, 1, 21), indexing="ij")
    assert shape_of(x**2 + 3 * y**2) == (1, 0.0)
    assert shape_of(x**2 - y**2) == (0, 1.0)
    assert shape_of(0 * x + 3 * y) == (0, 0.0)
    assert shape_of(x * y)[1] == 1.0  # its curvature lies between the axes
    minima, concave = shape_of((x**2 - 0.36) ** 2 + y**2)  # two valleys at x = +-0.6, concave for |x| < 0.6 / sqrt 3
    assert minima == 2 and concave == pytest.approx((abs(np.linspace(-0.9, 0.9, 19)) < 0.3464).mean(), abs=1e-9)


def test_several_models_have_a_panel_each(tmp_path):
    analysis, result = result_of(tiny_update(), tmp_path, points=3)
    figure = analysis.figure(result)
    titles = [axis.get_title() for axis in figure.axes if axis.get_visible()]
    assert titles[0].startswith("step 1\nmodel ") and titles[1].startswith("step 2\nmodel ")
    said = analysis.sentence(result)
    assert "the loss of step 1 is" in said and "the loss of step 2 is" in said and "± is two standard errors" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [("timesteps", [-1]), ("images", 1), ("points", 4), ("points", 1), ("radius", 0), ("batch_size", 0)],
)
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        Landscape(**{name: value})
