"""The weighting contract over every file of conf/weighting: a new yaml is tested without an edit here."""

from pathlib import Path

import pytest
import torch
from hydra import compose
from hydra.utils import instantiate

from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.diffusion import ConstantX0, Weighting
from diffusion_lab.testing import check_weighting

NAMES = sorted(path.stem for path in Path(conf_dir(), "weighting").glob("*.yaml"))


def make(name: str):
    register_resolvers()
    with initialized():
        cfg = compose("train", overrides=[f"weighting={name}", "schedule=linear"])
    return lambda: instantiate(cfg.weighting, _convert_="all")


@pytest.mark.parametrize("name", NAMES)
def test_every_weighting_keeps_the_contract(name):
    check_weighting(make(name))


def test_all_weightings_are_covered():
    published = "eps x0 v trunc_snr min_snr soft_min_snr max_snr p2 debiased edm vlb fdm_warmup uncertainty unit"
    assert set(published.split()) <= set(NAMES)


class Explodes(Weighting):
    """Infinite where little signal is left."""

    def x0_weight(self, snr, step):
        return torch.where(snr < 1e-4, torch.inf, snr)


class OnTheNativeLoss(Weighting):
    """Has an x0 weight, and forgets the prediction."""

    def x0_weight(self, snr, step):
        return snr

    def native_weight(self, snr, scale, step):
        return snr


class WrongType(ConstantX0):
    """Always float64."""

    def x0_weight(self, snr, step):
        return torch.ones_like(snr, dtype=torch.float64)


class HiddenClock(ConstantX0):
    """Counts its calls in place of reading the step."""

    calls = 0

    def x0_weight(self, snr, step):
        self.calls += 1
        return torch.full_like(snr, self.calls)


class ChangesInForward(ConstantX0):
    """Counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def x0_weight(self, snr, step):
        self.calls += 1
        return torch.ones_like(snr)


class Unnormalized(ConstantX0):
    """Has no use for the factor."""

    def forward(self, native_loss, snr, scale, step):
        return (native_loss * self.native_weight(snr[:, None].expand_as(scale), scale, step)).sum(1)


class Forgets(ConstantX0):
    """Keeps the normalising number in an attribute that no checkpoint has."""

    def refresh(self, snr, scale, p, step):
        if self.normalize == "none":
            return
        super().refresh(snr, scale, p, step)
        self.own = float(self.factor)
        self.factor.fill_(1.0)

    def forward(self, native_loss, snr, scale, step):
        return super().forward(native_loss, snr, scale, step) * getattr(self, "own", 1.0)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Explodes, "finite weights above 0"),
        (OnTheNativeLoss, "the same estimate another loss"),
        (WrongType, "float64 weights for an SNR of torch.float32"),
        (HiddenClock, "the same estimate another loss"),
        (ChangesInForward, "changed its state in forward"),
        (Unnormalized, "has mean"),
        (Forgets, "after a resume"),
    ],
)
def test_the_contract_notices_broken_weightings(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_weighting(broken)
