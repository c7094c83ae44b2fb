"""The gradient variance of a linear model, from the residuals and inputs of the same pairs.

A network that answers A x, with A (D,D) and x (D,) the noisy image as a vector, has the gradient g_i = 2/D r_i x_i^T,
r_i = A x_i - eps_i, so that g_i . g_j = 4/D^2 (r_i . r_j)(x_i . x_j): V and U follow from these N^2 products.
"""

import multiprocessing

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from diffusion_lab.analyses import GradientVarianceByTimestep, Result, Work
from diffusion_lab.analyses.gradients import gradient_variance
from diffusion_lab.analyses.gradients import rows as gradient_rows
from diffusion_lab.analyses.gradients.rows import gradient_blocks, jackknife, moments, without_each
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.diffusion import bound_weights, cosine, linear
from diffusion_lab.networks import UNet
from diffusion_lab.streams import Streams
from tests.analyses.models import half_width, of_seeds, source, trained

D, N = 16, 64


class Linear(nn.Module):
    """x -> A x, x the whole image as a vector."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.a = nn.Parameter(torch.randn(D, D, generator=generator) / D**0.5)

    def forward(self, x, t):
        return (x.flatten(1) @ self.a.T).view_as(x)


def model(schedule=None, **given):
    return trained(Linear(), source(), schedule=schedule or linear(50), **given)


def measured(models, folder, points=4, pairs=N):
    analysis = GradientVarianceByTimestep(pairs=pairs, points=points, batch_size=24)
    analysis.check(models)
    return analysis, analysis.run(models, Work(folder, Streams(0)))


def closed_form(model, t, folder):
    """V and U at t from the same pairs, in float64."""
    work = Work(folder, Streams(0))
    split = model.data.source.train()
    x0, _ = model.data.conditions.of_images(split, torch.arange(N))
    eps = torch.stack([work.normal(tuple(x0.shape[1:]), i, t) for i in range(N)])
    x = model.denoiser.schedule.perturb(x0.double(), eps.double(), torch.full((N,), t)).flatten(1)
    r = x @ model.denoiser.network.a.detach().double().T - eps.double().flatten(1)
    products = (4 / D**2 * (r @ r.T) * (x @ x.T)).numpy()
    squares, everything = np.trace(products), products.sum()
    return (squares - everything / N) / (N - 1), (everything - squares) / (N * (N - 1))


def assert_closed_form(result, one, folder):
    for k, t in enumerate(result.data["timesteps"]):
        variance, mean = closed_form(one, int(t), folder)
        assert result.data["variance"][0, k] == pytest.approx(variance, rel=1e-6)
        assert result.data["squared_mean"][0, k] == pytest.approx(mean, rel=1e-6, abs=1e-7 * variance)


def test_a_linear_model_has_the_variance_of_the_closed_form(tmp_path):
    _, result = measured([model()], tmp_path / "pieces")
    assert result.data["timesteps"].tolist() == [*range(11), 12, 24, 36, 48, 49]
    assert_closed_form(result, model(), tmp_path)


def test_gradients_that_are_computed_twice_give_the_same_bits(tmp_path, monkeypatch):
    """Kept: all of 8, none, and three in blocks of one."""
    found, row = [], sum(p.nbytes for p in model().denoiser.parameters())
    for kept, block in ((2**30, 2**29), (0, 2**29), (3 * row, 1)):
        monkeypatch.setattr(gradient_variance, "KEPT", kept)
        monkeypatch.setattr(gradient_rows, "BLOCK", block)
        _, result = measured([model()], tmp_path / str(len(found)), pairs=8)
        found.append([result.data[key] for key in ("square_norm", "with_sum")])
    assert all(np.array_equal(*pair) for pair in zip(found[0], found[1], strict=True))
    assert all(np.allclose(*pair, rtol=1e-6) for pair in zip(found[0], found[2], strict=True))


def one_of_two(rank, folder, queue):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    _, result = measured([model()], folder / f"pieces-{rank}")
    queue.put((rank, result))
    dist.destroy_process_group()


def test_two_processes_find_the_closed_form_too(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=one_of_two, args=(r, tmp_path, queue)) for r in range(2)]
    for process in ranks:
        process.start()
    found = dict(queue.get() for _ in ranks)
    for process in ranks:
        process.join(30)
        assert process.exitcode == 0
    for result in found.values():
        assert_closed_form(result, model(), tmp_path)
    assert all(np.array_equal(found[0].data[key], found[1].data[key]) for key in found[0].data)


def test_the_bound_weighs_the_variance_by_c_squared(tmp_path):
    one = model()
    _, result = measured([one], tmp_path)
    d, data = one.denoiser, result.data
    c = bound_weights(d.schedule, d.prediction, d.variance).numpy()[data["timesteps"]]
    assert np.allclose(data["weighted"][0], c**2 * data["variance"][0], rtol=1e-12)
    assert np.allclose(data["weighted_error"][0], c**2 * data["variance_error"][0], rtol=1e-12)


def test_the_jackknife_leaves_out_one_pair_each():
    """Against the same statistics of the remaining vectors; and of V, whose variance is known for normal vectors:
    2 sum_j s_j^4 / (N-1) for independent components of variances s_j^2."""
    draw = np.random.default_rng(0)
    spread = np.array([1.0, 2.0, 0.5])

    def statistics(g):
        return moments((g**2).sum(1), g @ g.sum(0))

    g = 1 + spread * draw.normal(size=(12, 3))
    each = without_each((g**2).sum(1), g @ g.sum(0))
    for k in range(12):
        assert np.allclose([each[0][k], each[1][k]], statistics(np.delete(g, k, 0)))
    found = []
    for _ in range(300):
        g = 1 + spread * draw.normal(size=(40, 3))
        found.append((*statistics(g), *map(jackknife, without_each((g**2).sum(1), g @ g.sum(0)))))
    variance, mean, variance_error, mean_error = np.array(found).T
    assert variance_error.mean() == pytest.approx(np.sqrt(2 * (spread**4).sum() / 39), rel=0.1)
    assert variance.mean() == pytest.approx((spread**2).sum(), rel=0.02)
    assert mean.mean() == pytest.approx(3, abs=4 * mean.std() / 300**0.5)  # the mean vector is (1, 1, 1)
    assert mean_error.mean() == pytest.approx(mean.std(), rel=0.15)


def test_rows_together_have_the_gradients_of_single_backward_passes():
    network = UNet(1, 1, 8, base_channels=8, channel_multipliers=[1, 2], num_res_blocks=1, attention_resolutions=[4])
    with torch.no_grad():
        for p in network.parameters():  # the last convolution starts at zero, and then most gradients are 0
            p.add_(0.05)
    denoiser = trained(network, source(size=8)).denoiser
    x0, eps, t = torch.randn(3, 1, 8, 8), torch.randn(3, 1, 8, 8), torch.tensor([0, 20, 49])
    rows = torch.cat([*gradient_blocks(denoiser, x0, eps, t, {}, batch_size=2)])
    for i in range(3):
        loss = denoiser.loss(x0[i : i + 1], eps[i : i + 1], t[i : i + 1]).native.sum()
        one = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(denoiser.parameters()))])
        assert torch.allclose(rows[i], one, rtol=1e-4, atol=1e-5 * float(one.abs().max()))


def test_schedules_share_an_axis_and_the_sentence_has_their_ratios(tmp_path):
    analysis, result = measured([model(folder="a-lin"), model(cosine(50), folder="a-cos")], tmp_path, pairs=8)
    said = analysis.sentence(result)
    for m, name in enumerate(("lin", "cos")):
        t, v = result.data["timesteps"], result.data["variance"][m]
        every = np.interp(np.arange(50), t, v)
        ratio, error = (result.data[key][m] for key in ("early_late", "early_late_error"))
        assert ratio == pytest.approx(every[:5].mean() / every[25:].mean())
        assert f"{plus_minus(ratio, 2 * error)} times for {name}" in said
    assert "of 2 cases" in said and said.endswith(": two standard errors over 8 pairs).")
    figure = analysis.figure(result)
    (line, *_) = figure.axes[0].lines
    assert np.array_equal(line.get_ydata(), result.data["variance"][0])


def test_what_the_sentence_concludes():
    curve = {"name": "", "members": [0], "largest_over_smallest": 50.0, "at": [0, 900]}
    facts, analysis = {"timesteps": 1000, "pairs": 64, "curves": [curve]}, GradientVarianceByTimestep()
    cases = ([3.0], "higher at small t"), ([0.1], "lower at small t"), ([1.15], "not decided"), ([0.85], "not decided")
    seeds = ([2.0, 2.4, 2.2], "higher at small t"), ([1.2, 1.6, 1.4], "not decided")  # 1.4 - 4.30 * 0.2 / sqrt(3) < 1
    for ratios, words in (*cases, *seeds):
        curve["members"] = list(range(len(ratios)))
        data = {key: np.array(ratios) for key in ("early_late", "early_late_weighted")}
        data |= {f"{key}_error": np.full(len(ratios), 0.1) for key in data}
        said = analysis.sentence(Result(data, facts))
        assert words in said and "at t < 100 is, relative to t >= 500, " in said and "up to 50 times" in said


def test_seeds_are_one_line(tmp_path):
    models = of_seeds(lambda seed, **given: model(**given))
    with torch.no_grad():
        models[1].denoiser.network.a.mul_(2)
    analysis, result = measured(models, tmp_path, pairs=8)
    said = analysis.sentence(result)
    for key, words in (("early_late", " times ("), ("early_late_weighted", " with the bound's weights)")):
        ratios = result.data[key]
        assert f"{plus_minus(ratios.mean(), half_width(ratios))}{words}" in said
    assert said.endswith("(\N{PLUS-MINUS SIGN}: 95 % intervals over 2 seeds).")
    (band, *_) = analysis.figure(result).axes[0].collections
    top = max(y for t, y in band.get_paths()[0].vertices if t == 49)
    last = result.data["variance"][:, -1]
    assert top == pytest.approx(last.mean() + half_width(last))


def test_fewer_images_than_pairs_and_other_numbers_of_timesteps():
    with pytest.raises(ValueError, match="analysis.pairs=65 must be at most the 64 training images of run; use 64"):
        GradientVarianceByTimestep(pairs=65).check([model()])
    with pytest.raises(ValueError, match="run=a,b must have the same number of timesteps"):
        GradientVarianceByTimestep().check([model(folder="a"), model(linear(60), folder="b")])


@pytest.mark.parametrize("given", [{"pairs": 2}, {"points": 1}, {"batch_size": 0}])
def test_arguments_out_of_range(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}=.* must be"):
        GradientVarianceByTimestep(**given)
