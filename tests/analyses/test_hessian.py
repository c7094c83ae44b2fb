"""The spectrum of a Hessian against the dense matrix, in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import Hessian, Work, lanczos
from diffusion_lab.analyses.weights.hessian import heading_of
from diffusion_lab.analyses.weights.lanczos import HessianVector, density, largest, ritz, smallest
from diffusion_lab.analyses.weights.weight_space import doubled
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.networks import UViT
from diffusion_lab.streams import Streams
from diffusion_lab.testing.analyses import tiny_update
from tests.analyses.models import source, trained


def symmetric(eigenvalues, seed=0):
    size = len(eigenvalues)
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))
    return basis @ torch.diag(torch.as_tensor(eigenvalues, dtype=torch.float64)) @ basis.T


def start(size, seed=0):
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).sign()


def dense(module, objective):
    """The Hessian (P,P) of the mean loss, by one pass of autograd for each row."""
    parameters = list(module.parameters())
    gradient = torch.autograd.grad(objective.loss().mean(), parameters, create_graph=True)
    flat = torch.cat([piece.flatten() for piece in gradient])
    rows = [torch.autograd.grad(one, parameters, retain_graph=True, materialize_grads=True) for one in flat]
    return torch.stack([torch.cat([piece.flatten() for piece in row]) for row in rows])


class Small(nn.Module):
    """Two convolutions; the Hessian of its loss has both signs."""

    def __init__(self, width=6, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.inner, self.outer = nn.Conv2d(1, width, 3, padding=1), nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        return self.outer(self.inner(x).sin())


def test_all_steps_give_all_eigenvalues():
    values = np.array([-30.0, -2.0, -0.5, 0.0, 1e-3, 0.1, 1.0, 7.0, 7.5, 100.0])
    matrix = symmetric(values)
    alphas, betas = lanczos(lambda v: matrix @ v, start(10), 10)
    found = ritz(alphas.numpy(), betas.numpy())
    assert np.allclose(found.values, values, atol=1e-10) and found.errors.max() < 1e-8
    assert found.weights.sum() == pytest.approx(1) and (alphas.sum().item()) == pytest.approx(values.sum())


def test_no_copies_of_converged_eigenvalues():
    """One large eigenvalue converges within a few steps; without re-orthogonalisation copies of it follow."""
    values = np.concatenate([np.linspace(0, 1, 199), [1e4]])
    matrix = symmetric(values)
    alphas, betas = lanczos(lambda v: matrix @ v, start(200), 60)
    assert (ritz(alphas.numpy(), betas.numpy()).values > 2).sum() == 1
    v, last, beta, diagonal, off = start(200) / 200**0.5, 0, 0.0, [], []  # the plain recursion
    for _ in range(60):
        w = matrix @ v - beta * last
        diagonal.append(float(w @ v))
        w = w - diagonal[-1] * v
        beta = float(w.norm())
        off.append(beta)
        v, last = w / beta, v
    assert (ritz(np.array(diagonal), np.array(off)).values > 2).sum() > 1


def test_it_ends_where_the_subspace_does():
    """Rank 3 with distinct eigenvalues and a null space: four steps see all that there is."""
    matrix = symmetric([5.0, 3.0, -1.0] + [0.0] * 47)
    alphas, betas = lanczos(lambda v: matrix @ v, start(50), 30)
    assert len(alphas) == len(betas) == 4 and betas[-1] == 0
    assert np.allclose(ritz(alphas.numpy(), betas.numpy()).values, [-1, 0, 3, 5], atol=1e-10)


def test_extremes_of_several_vectors_and_their_bounds():
    values = np.linspace(-4, 9, 300) ** 3
    matrix = symmetric(values)
    found = [ritz(*(x.numpy() for x in lanczos(lambda v: matrix @ v, start(300, seed), 25))) for seed in range(3)]
    for ends, error in (largest(found, 4), smallest(found, 4)):
        assert (np.abs(ends[:, None] - values).min(1) <= error + 1e-9).all()
    assert (largest(found, 4)[0] <= values[::-1][:4] + 1e-9).all() and largest(found, 4)[0][0] > 728
    assert (smallest(found, 4)[0] >= values[:4] - 1e-9).all() and smallest(found, 4)[0][0] < -63


def test_the_density_is_that_of_the_dense_matrix():
    """Mean and variance of the quadrature: tr H / P and |H|^2 / P - (tr H / P)^2, and a total of 1."""
    values = np.concatenate([np.linspace(-1, 1, 380), np.linspace(4, 6, 20)])
    matrix = symmetric(values)
    found = [ritz(*(x.numpy() for x in lanczos(lambda v: matrix @ v, start(400, seed), 40))) for seed in range(8)]
    grid = np.linspace(-3, 8, 4001)
    mean = density(found, grid, 0.05).mean(0)
    first, second = (np.trapezoid(mean * grid**k, grid) for k in (1, 2))
    assert np.trapezoid(mean, grid) == pytest.approx(1, abs=1e-6)
    assert first == pytest.approx(values.mean(), abs=0.1)
    assert second - first**2 == pytest.approx(values.var() + 0.05**2, rel=0.2)
    assert np.trapezoid(mean[grid > 3], grid[grid > 3]) == pytest.approx(0.05, abs=0.03)


@pytest.mark.parametrize("batch_size", [256, 5])
def test_products_are_those_of_the_dense_hessian(batch_size, tmp_path):
    (model, _) = tiny_update()
    with doubled(model.module):
        objective = model.fixed_set_loss((0, 300), 5, Work(tmp_path, Streams(0)).normal, batch_size)
        hvp, matrix = HessianVector(model.module, objective), dense(model.module, objective)
        for seed in range(3):
            v = start(77, seed)
            assert torch.allclose(hvp(v), matrix @ v, rtol=1e-9, atol=1e-12)


def test_against_the_dense_hessian(tmp_path):
    """Eigenvalues to 1e-6, the trace within 2 standard errors, at weights where the Hessian has both signs."""
    model = trained(Small(), source())
    work = Work(tmp_path, Streams(0))
    analysis = Hessian((0, 500), images=4, vectors=3, steps=115, draws=64, count=5, double=True)
    analysis.check([model])
    result = analysis.run([model], work)
    with doubled(model.module):
        exact = (
            torch.linalg.eigvalsh(dense(model.module, model.fixed_set_loss((0, 500), 4, work.normal))).detach().numpy()
        )
    data = result.data
    assert data["parameters"].tolist() == [len(exact)] and exact[0] < -0.01 < 0.01 < exact[-1]
    assert np.allclose(data["largest"][0], exact[::-1][:5], atol=1e-6, rtol=1e-6)
    assert np.allclose(data["smallest"][0], exact[:5], atol=1e-6, rtol=1e-6)
    by_magnitude = exact[np.argsort(-np.abs(exact))][:5]
    assert np.allclose(data["by_magnitude"][0], by_magnitude, atol=1e-6)
    assert abs(data["trace"][0] - exact.sum()) < 2 * data["trace_standard_error"][0]
    said = analysis.sentence(result)
    assert f"the trace is {plus_minus(data['trace'][0], 2 * data['trace_standard_error'][0])}" in said
    assert f"The largest eigenvalue of the Hessian is {data['largest'][0, 0]:,.3g} and" in said
    assert f"the smallest {data['smallest'][0, 0]:.3g}" in said
    assert analysis.figure(result).axes and all(p.dtype == torch.float32 for p in model.module.parameters())


class Negative(nn.Module):
    """Answers c - a |w|^2 everywhere, far below the noise: a Hessian that is negative on average."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-0.1, 0.1, 20))

    def forward(self, x, t):
        return (5 - self.w.square().sum()).expand(x.shape)


def test_no_eigenvalue_is_counted_at_both_ends():
    """With fewer steps than twice `count` the same one came twice, as two estimates."""
    matrix = symmetric(np.linspace(-9, 10, 40))
    found = [[ritz(*(one.numpy() for one in lanczos(lambda v: matrix @ v, start(40, s), 10))) for s in range(3)]]
    data = Hessian(count=10, steps=10)._numbers(found, np.zeros((1, 4)))
    assert data["largest"].shape == (1, 5) == data["smallest"].shape
    assert data["largest"].min() > data["smallest"].max()


def test_a_negative_trace_is_no_special_case(tmp_path):
    """L = mean (5 - |w|^2 - eps)^2: H = 8 w w^T - 4 (5 - |w|^2 - mean eps) I."""
    model, work = trained(Negative(), source()), Work(tmp_path, Streams(0))
    analysis = Hessian((0,), images=4, steps=20, draws=16, count=2, double=True)
    result = analysis.run([model], work)
    eps = torch.stack([work.normal((1, 4, 4), int(i)) for i in model.test_images(4)[0]]).double()
    square = model.denoiser.network.w.detach().double().square().sum()
    rest = float(-4 * (5 - square - eps.mean()))
    assert result.data["smallest"][0, 0] == pytest.approx(rest, rel=1e-6)
    assert result.data["largest"][0, 0] == pytest.approx(rest + 8 * float(square), rel=1e-6)
    trace = 20 * rest + 8 * float(square)
    assert abs(result.data["trace"][0] - trace) < 2 * result.data["trace_standard_error"][0] and trace < 0
    assert "a summit" in analysis.sentence(result) and analysis.figure(result).axes


def test_attention_has_a_second_derivative(tmp_path):
    """U-ViT, also with recomputed activations."""
    products = []
    for checkpointing in (False, True):
        torch.manual_seed(0)
        network = UViT(1, 1, 4, dim=8, depth=2, num_heads=2, checkpointing=checkpointing)
        model = trained(network, source())
        hvp = HessianVector(model.module, model.fixed_set_loss((500,), 2, Work(tmp_path, Streams(0)).normal))
        v = torch.ones(hvp.size)
        products.append((hvp(v), hvp(v)))
    assert all(torch.isfinite(one).all() and one.abs().max() > 0 for pair in products for one in pair)
    assert torch.allclose(products[0][0], products[1][1], rtol=1e-4, atol=1e-5)


def test_networks_of_different_size_are_said_not_to_be_compared(tmp_path):
    models = [trained(Small(width), source(), folder=name) for width, name in ((2, "a"), (4, "b"))]
    analysis = Hessian((0,), images=2, steps=5, draws=2, count=2)
    result = analysis.run(models, Work(tmp_path, Streams(0)))
    assert "with 39 and 77 parameters only eigenvalues and traces can be compared" in analysis.sentence(result)
    assert "of the loss at t = 0, 2 images; bars: bounds of the numerical error; networks of" in heading_of(result)


def test_the_heading_names_the_losses_of_each_kind_of_model(tmp_path):
    analysis = Hessian((0, 500), images=2, steps=5, draws=2, count=2)
    result = analysis.run([trained(Small(2), source(), folder="a")], Work(tmp_path, Streams(0)))
    groups = [{"name": name, "members": [m]} for m, name in enumerate(("a", "gan"))]
    assert result.facts["losses"] == [["t = 0", "t = 25"]]
    facts = result.facts | {"groups": groups, "losses": [["t = 0", "t = 25"], ["generator loss"]]}
    assert "of the mean loss at t = 0, 25 or the generator loss, " in heading_of(result._replace(facts=facts))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timesteps", []),
        ("images", 0),
        ("vectors", 2),
        ("steps", 1),
        ("draws", 1),
        ("count", 0),
        ("width", 0),
        ("double", 1),
    ],
)
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}="):
        Hessian(**{name: value})
