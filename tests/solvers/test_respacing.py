"""Which timesteps are kept, against improved-diffusion's maps."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import cosine
from diffusion_lab.solvers import space_timesteps


def accumulated(total: int, count: int) -> list[int]:
    """One section as improved-diffusion walks it: a running float to which the stride is added after each timestep."""
    stride = (total - 1) / (count - 1) if count > 1 else 1
    current, taken = 0.0, []
    for _ in range(count):
        taken.append(round(current))
        current += stride
    return taken


@pytest.mark.parametrize("total", [300, 1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_every_count_is_the_accumulation_of_the_stride(total):
    for count in range(2, total + 1):  # a single timestep is the last, see test_one_step.py
        assert space_timesteps(total, count).tolist() == accumulated(total, count), count


def test_multiplying_the_stride_would_differ():
    """The control: in 278 counts of T = 1000 the sum of the strides ends on the other side of a half."""
    products = ([round(k * (999 / (n - 1))) for k in range(n)] for n in range(2, 1001))
    assert sum(product != accumulated(1000, n) for n, product in enumerate(products, 2)) == 278


def test_each_section_starts_its_own_sum():
    kept = space_timesteps(300, "10,15,20").tolist()
    parts = [[start + t for t in accumulated(100, count)] for start, count in ((0, 10), (100, 15), (200, 20))]
    assert kept == sum(parts, []) and 149 in kept and 150 not in kept


@pytest.mark.parametrize("spec", ["250", 250, [250]])
def test_250_of_4000_is_improved_diffusions_map(spec):
    kept = space_timesteps(4000, spec)
    assert kept.dtype == torch.int64 and len(kept) == 250
    assert kept[:6].tolist() == [0, 16, 32, 48, 64, 80]
    assert kept[-3:].tolist() == [3967, 3983, 3999]
    betas = cosine(4000).respace(kept).betas
    assert betas[-3:].tolist() == pytest.approx([0.5555, 0.7500, 0.999996], abs=5e-5)


def test_ddim_form_takes_the_first_integer_stride():
    assert space_timesteps(1000, "ddim50").tolist() == list(range(0, 1000, 20))
    # 200 of 1000: strides 5 gives 200. 334 = len(range(0, 1000, 3)).
    assert space_timesteps(1000, "ddim334").tolist() == list(range(0, 1000, 3))
    assert space_timesteps(10, "ddim2").tolist() == [0, 5]  # strides 5..9 give two; the smallest is taken


@pytest.mark.parametrize("spec", ["10,15,20", [10, 15, 20], "10, 15, 20"])
def test_sections_get_their_own_counts(spec):
    kept = space_timesteps(300, spec)
    assert len(kept) == 45 and (kept.diff() > 0).all()
    for start, count in ((0, 10), (100, 15), (200, 20)):
        inside = kept[(kept >= start) & (kept < start + 100)]
        assert len(inside) == count and inside[0] == start and inside[-1] == start + 99


def test_unequal_sections_give_the_first_ones_more():
    assert space_timesteps(10, [4, 3, 3]).tolist() == list(range(10))


def test_all_of_them_and_halves_to_even():
    assert space_timesteps(7, 7).tolist() == list(range(7))
    assert space_timesteps(6, 3).tolist() == [0, 2, 5]  # 2.5 -> 2
    assert space_timesteps(8, 3).tolist() == [0, 4, 7]  # 3.5 -> 4


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ddim300", r"^steps='ddim300' must be .* through 1000 gives; the nearest is ddim334"),
        ("ddim", r"^steps='ddim' must be a positive integer"),
        ("ddim10,20", r"^steps='ddim10,20' must be a positive integer"),
        ("abc", r"^steps='abc' must be a positive integer, .* or ddim<integer>; for example 250"),
        (0, r"^steps=0 must be a positive integer"),
        (-5, r"^steps=-5 must be"),
        (2.5, r"^steps=2.5 must be"),
        ("", r"^steps='' must be"),
        ([], r"^steps=\[\] must be"),
        (1001, r"^steps=1001 must not take 1001 of 1000 timesteps; use at most 1000"),
        ("10,600", r"^steps='10,600' must not take 600 of 500"),
        ([1] * 1001, r"must have at most 1000 sections"),
    ],
)
def test_bad_forms_are_named(spec, message):
    with pytest.raises(ValueError, match=message):
        space_timesteps(1000, spec)
