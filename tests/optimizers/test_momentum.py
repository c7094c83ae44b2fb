"""The momentum of an optimizer under its two names."""

from __future__ import annotations

import pytest

from diffusion_lab.optimizers import set_betas


@pytest.mark.parametrize(
    ("group", "betas", "after"),
    [
        ({"betas": (0.9, 0.999)}, (0.5, None), {"betas": (0.5, 0.999)}),
        ({"betas": (0.9, 0.999)}, (None, 0.99), {"betas": (0.9, 0.99)}),
        ({"betas": (0.9, 0.999)}, (None, None), {"betas": (0.9, 0.999)}),
        ({"momentum": 0.95}, (0.5, 0.9), {"momentum": 0.5}),
        ({"momentum": 0.95}, (None, 0.9), {"momentum": 0.95}),
    ],
)
def test_what_is_none_stays_and_a_group_without_betas_has_a_momentum(group: dict, betas: tuple, after: dict) -> None:
    set_betas(group, *betas)
    assert group == after
