"""The loss on a line of weights, where it is known."""

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import Interpolation, PerTimestep, Work
from diffusion_lab.analyses.weights.interpolation import pairs_of
from diffusion_lab.analyses.weights.weight_space import between, borrowed, doubled, write
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.diffusion import cosine
from diffusion_lab.streams import Streams
from diffusion_lab.testing.analyses import tiny_update
from tests.analyses.models import Constant, source, trained

T = (0, 100, 900)


class Product(nn.Module):
    """Answers u v everywhere: the loss has valleys at both signs, and a barrier between them."""

    def __init__(self, u, v):
        super().__init__()
        self.u, self.v = nn.Parameter(torch.tensor(u)), nn.Parameter(torch.tensor(v))

    def forward(self, x, t):
        return (self.u * self.v).expand(x.shape)


def result_of(models, tmp_path, **given):
    analysis = Interpolation(**({"timesteps": T, "images": 6} | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(0)))


def test_the_ends_have_the_losses_of_per_timestep(tmp_path):
    models = tiny_update()
    before = [{k: v.clone() for k, v in model.module.state_dict().items()} for model in models]
    _, result = result_of(models, tmp_path, points=5)
    expected = PerTimestep(images=6).run(models, Work(tmp_path / "t", Streams(0))).data["losses"]
    assert result.data["alpha"].tolist() == [-0.5, 0, 0.5, 1, 1.5]
    for alpha, m in ((3, 0), (1, 1)):  # alpha = 1 is the model that is named first
        assert np.allclose(result.data["losses_0"][:, alpha], expected[m, :, T, 0].T, rtol=1e-6, atol=0)
    for model, kept in zip(models, before, strict=True):
        assert all(torch.equal(value, kept[name]) for name, value in model.module.state_dict().items())


def test_a_convex_loss_has_no_barrier(tmp_path):
    """Constants c: the loss is mean (c - eps)^2, so the height is -alpha (1 - alpha) (c_a - c_b)^2."""
    models = [trained(Constant(value), source(), step=step) for step, value in ((1, 3.0), (2, 1.0))]
    analysis, result = result_of(models, tmp_path)
    alpha = result.data["alpha"]
    assert np.allclose(result.data["height"][0], -alpha * (1 - alpha) * 4, atol=1e-5)
    assert result.data["barrier"].tolist() == [0] and result.data["standard_error"].min() > 0
    said = analysis.sentence(result)
    ends = [f"{result.data['mean'][0, np.flatnonzero(alpha == end)[0]]:.3g}" for end in (0, 1)]
    assert f"meets no barrier between step 2 ({ends[0]} at alpha = 0) and step 1 ({ends[1]} at alpha = 1)" in said
    assert analysis.figure(result).axes


def test_the_height_of_a_known_barrier(tmp_path):
    """From (1, 3) to (-1, -3) the answer is 3 (2 alpha - 1)^2, and the noise is known."""
    models = [trained(Product(s * 1.0, s * 3.0), source(), step=step) for step, s in ((1, 1), (2, -1))]
    analysis, result = result_of(models, tmp_path)
    eps = np.stack([Streams(0).normal((1, 4, 4), "analysis", int(i)).numpy() for i in models[0].test_images(6)[0]])
    alpha, row = result.data["alpha"], eps.reshape(6, -1)
    height = ((3 * (2 * alpha - 1) ** 2)[:, None, None] - row).__pow__(2).mean(2) - ((3 - row) ** 2).mean(1)
    assert np.allclose(result.data["height"][0], height.mean(1), atol=1e-4)
    inside = np.where((alpha >= 0) & (alpha <= 1), height.mean(1), -np.inf)
    top = int(inside.argmax())
    (barrier,), (error,) = result.data["barrier"], result.data["barrier_standard_error"]
    assert barrier == pytest.approx(max(inside.max(), 0), abs=1e-4)
    assert error == pytest.approx(height[top].std(ddof=1) / 6**0.5 if inside.max() > 0 else 0, abs=1e-4)


def test_the_barrier_in_the_sentence_is_the_one_in_the_file(tmp_path):
    """The answer is 0 at both ends and 4 in the middle, which is worse than the line between the ends."""
    models = [trained(Product(u, v), source(), step=step) for step, (u, v) in enumerate([(4.0, 0.0), (0.0, 4.0)], 1)]
    analysis, result = result_of(models, tmp_path)
    (barrier,), (error,) = result.data["barrier"], result.data["barrier_standard_error"]
    assert barrier > 10 and result.data["barrier_at"].tolist() == [0.5]
    share = barrier / max(result.data["mean"][0, [10, 30]])
    said = analysis.sentence(result)
    assert f"a barrier of {plus_minus(barrier, 2 * error)}, {share:.2g} times the higher end, at alpha = 0.5" in said
    assert "two standard errors over 6 images" in said


def test_several_seeds_are_one_line_with_an_interval(tmp_path):
    def run(seed, step, u, v):
        model = trained(Product(u, v), source(), step=step, folder=f"run-s{seed}")
        model.config.update(seed=seed, network="product")
        return model

    models = [run(seed, *end) for seed in (0, 1, 2) for end in ((1, 4.0 + seed, 0.0), (2, 0.0, 4.0))]
    analysis, result = result_of(models, tmp_path)
    assert result.facts["groups"] == [{"name": "", "pairs": [0, 1, 2]}] and len(result.data["barrier"]) == 3
    said = analysis.sentence(result)
    barrier = result.data["barrier"]
    half = 4.302653 * barrier.std(ddof=1) / 3**0.5
    assert plus_minus(barrier.mean(), half) in said and "95 % intervals over 3 seeds" in said


def test_what_is_no_pair():
    data = source()

    def model(folder, step, **given):
        return trained(Constant(), data, folder=folder, step=step, **given)

    assert len(pairs_of([model("a", 1), model("b", 1)])) == 1
    assert [pair.a.name for pair in pairs_of([model(name, step) for name in "ab" for step in (1, 2)])] == ["a", "b"]
    for models in ([model("a", 1)], [model(name, 1) for name in "abc"], [model("a", step) for step in (1, 2, 3)]):
        with pytest.raises(ValueError, match="^checkpoint=.* must be two of each run, or one of two runs; use"):
            Interpolation(images=2).check(models)
    with pytest.raises(ValueError, match="^run=a,b must be of one network, prediction, schedule and test images"):
        Interpolation(images=2).check([model("a", 1), model("b", 1, schedule=cosine(50))])
    with pytest.raises(ValueError, match="^run=a,b must be of one network"):
        Interpolation(images=2).check([model("a", 1), trained(Product(1.0, 1.0), data, folder="b")])
    with pytest.raises(ValueError, match="^analysis.images=65 must be at most 64"):
        Interpolation(images=65).check([model("a", 1), model("b", 1)])


@pytest.mark.parametrize(
    ("name", "value"),
    [("timesteps", []), ("timesteps", [1000]), ("images", 1), ("points", 1), ("low", 0.1), ("high", 0.9)],
)
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        Interpolation(**{name: value})


def test_a_running_variance_is_not_extrapolated():
    norm = nn.BatchNorm2d(2)
    a, b = ({k: v.clone() for k, v in norm.state_dict().items()} for _ in range(2))
    a["running_var"], b["running_var"] = torch.tensor([1.0, 1.0]), torch.tensor([4.0, 4.0])
    a["weight"], b["weight"] = torch.tensor([1.0, 1.0]), torch.tensor([4.0, 4.0])
    for alpha, variance, weight in ((2.0, 1.0, -2.0), (0.5, 2.5, 2.5), (-1.0, 4.0, 7.0)):
        found = between(norm, a, b, alpha)
        assert found["running_var"].tolist() == [variance] * 2 and found["weight"].tolist() == [weight] * 2
    assert all(torch.equal(value, a[name]) for name, value in between(norm, a, b, 1.0).items())


def test_borrowed_and_doubled_weights_come_back():
    module = nn.Linear(3, 2)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(RuntimeError), borrowed(module) as kept:
        write(module, {name: value + 1 for name, value in kept.items()})
        assert module.bias.tolist() == (before["bias"] + 1).tolist()
        raise RuntimeError
    with doubled(module):
        assert module(torch.ones(3, dtype=torch.float64)).dtype == torch.float64
    assert all(
        value.dtype == torch.float32 and torch.equal(value, before[n]) for n, value in module.state_dict().items()
    )


@pytest.mark.parametrize(
    ("value", "half", "words"),
    [(0.4312, 0.0521, "0.431 ± 0.052"), (1234.5, 120, "1,230 ± 120"), (0.5, 0.0, "0.5"), (2e-7, 1e-8, "2e-07 ± 1e-08")],
)
def test_a_number_with_its_half_width(value, half, words):
    assert plus_minus(value, half) == words
