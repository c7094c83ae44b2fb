"""Which timesteps each spacing takes."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import cosine, linear
from diffusion_lab.solvers import Euler, Heun, Karras, Listed, Spacing, Trailing, Uniform, space_timesteps
from tests.solvers.flow import rectified


def test_uniform_takes_the_timesteps_of_the_other_solvers():
    for steps in (20, "10,15,20", "ddim50"):
        assert torch.equal(Uniform().indices(linear(), steps), space_timesteps(1000, steps).flip(0))
    assert Uniform().indices(linear(), None).tolist() == list(range(999, -1, -1))


@pytest.mark.parametrize("shift", [3.0, 0.5])
def test_shift_is_sd3s_formula_on_the_linear_path(shift):
    path = rectified(1000)
    even = path.noise_scale[Trailing().indices(path, 10)]
    wanted = shift * even / (1 + (shift - 1) * even)
    got = path.noise_scale[Trailing(shift).indices(path, 10)]
    assert (got - wanted).abs().max() < 1.5e-3  # to a grid point
    assert (got - even).abs().max() > 0.1


def test_timesteps_that_coincide_are_taken_once():
    kept = Uniform(30.0).indices(linear(100), None)
    assert (kept.diff() < 0).all() and len(kept) < 100 and kept[0] == 99
    assert (Karras().indices(linear(50), 40).diff() < 0).all()


def test_trailing_steps_are_equal_and_the_last_goes_to_the_data():
    assert Trailing().indices(linear(1000), 10).tolist() == list(range(999, 0, -100))
    assert Trailing().indices(linear(1000), None).tolist() == list(range(999, -1, -1))
    levels = rectified(1000).noise_scale[Trailing().indices(rectified(1000), 20)]
    assert (levels - torch.linspace(1, 0.05, 20)).abs().max() < 1e-3


def test_karras_takes_the_levels_of_heun():
    assert torch.equal(Karras().indices(cosine(), 18), Heun(18).indices(cosine()))


def test_a_list_is_taken_as_it_is():
    seen = Listed([99, 40, 7]).indices(linear(100), None)
    assert seen.tolist() == [99, 40, 7]


def test_words():
    assert [s.describe() for s in (Uniform(), Uniform(3.0), Trailing(3.0), Karras(), Listed([3, 1]))] == [
        "uniform",
        "uniform-shift3",
        "trailing-shift3",
        "karras-rho7-sigma0.002-80",
        "listed-3,1",
    ]


class Rising(Spacing):
    def indices(self, schedule, steps):
        return torch.arange(5)

    def describe(self):
        return "rising"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Listed([3, 5]), r"^timesteps=\[3, 5\] must fall, with the noisiest timestep first; sort"),
        (lambda: Listed([5, 5]), r"^timesteps=\[5, 5\] must fall"),
        (lambda: Listed([5, -1]), r"^timesteps=-1 must be an integer >= 0"),
        (lambda: Listed([]), r"^timesteps=\[\] must be timesteps of the schedule"),
        (lambda: Euler(None, Listed([100, 5])).check(linear(100)), r"^spacing.timesteps=\[100, 5\] must be .* 0 to 99"),
        (lambda: Euler(4, Listed([9, 5])).check(linear(100)), r"^steps=4 must be null where the timesteps are listed"),
        (lambda: Euler(None, Karras()).check(linear(100)), r"^steps=None must be an integer >= 1; Karras"),
        (lambda: Euler(9, Karras(7.0, 1e-3, 5e-3)).check(linear()), r"^sigma_min=0.001 must leave a range"),
        (lambda: Euler(200, Trailing()).check(linear(100)), r"^steps=200 must be an integer in \[1, 100\]"),
        (lambda: Euler(4, Rising()).check(linear(100)), r"^spacing=\[0, 1, 2, 3, 4\] must fall"),
        (lambda: Uniform(0.0), r"^shift=0.0 must lie in \(0, inf\); use 1.0 for none"),
        (lambda: Karras(0.5), r"^rho=0.5 must lie in \[1, inf\)"),
        (lambda: Karras(sigma_min=90.0), r"^sigma_min=90.0 must lie in \(0, 80\)"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
