"""Annealings against their closed forms, over the whole run."""

import math

import pytest

from diffusion_lab.annealing import Constant, Cosine, Hyper, Linear, Warmup


def test_constant():
    assert [Constant()(k) for k in (0, 10**6)] == [Hyper(1.0)] * 2


def test_warmup_reaches_the_full_rate_at_its_last_step():
    assert [Warmup(4)(k).lr_factor for k in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_warmup_multiplies_what_follows():
    both = Warmup(2, then=Linear(10))
    assert both(0).lr_factor == pytest.approx(0.5) and both(5).lr_factor == pytest.approx(0.5)


@pytest.mark.parametrize("final", [0.0, 0.1])
def test_cosine_and_linear_meet_their_ends_and_middle(final):
    for schedule in (Cosine(100, final), Linear(100, final)):
        assert schedule(0).lr_factor == pytest.approx(1.0)
        assert schedule(50).lr_factor == pytest.approx((1 + final) / 2)
        assert schedule(100).lr_factor == schedule(1000).lr_factor == pytest.approx(final)
    assert Cosine(100)(25).lr_factor == pytest.approx((1 + math.sqrt(0.5)) / 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Warmup(0), "warmup_steps=0 must be an integer >= 1"),
        (lambda: Cosine(0), "total_steps=0 must be an integer >= 1"),
        (lambda: Linear(10, final=1.5), "final=1.5 must lie in"),
        (lambda: Cosine(10, final=float("nan")), "final=nan must lie in"),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
