"""The prediction contract over every file of conf/prediction and over every rule of the mixed one."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from diffusion_lab.cli.checks.signatures import check_nodes
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.targets import Trust
from diffusion_lab.diffusion import V
from diffusion_lab.testing import check_prediction

FOLDER = Path(conf_dir(), "prediction")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
RULES = [
    [f"prediction/{axis.name}={path.stem}"]
    for axis in sorted(FOLDER.iterdir())
    if axis.is_dir()
    for path in sorted(axis.glob("*.yaml"))
]


def make(*overrides: str):
    register_resolvers()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("train", overrides=list(overrides))
    assert check_nodes(OmegaConf.masked_copy(cfg, ["prediction"]), Trust()) == []
    return lambda: instantiate(cfg.prediction, _convert_="all")


@pytest.mark.parametrize("name", NAMES)
def test_every_prediction_keeps_the_contract(name):
    check_prediction(make(f"prediction={name}"))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
def test_every_rule_of_the_mixed_prediction_keeps_the_contract(rule):
    extra = ["prediction/reduction=gate"] if rule == ["prediction/generation_head=gate"] else []
    check_prediction(make("prediction=mixed", *rule, *extra))


def test_all_are_covered():
    assert {"eps", "x0", "v", "mixed", "mixed_paper", "combined"} <= set(NAMES)
    assert len(RULES) == 5 + 4 + 5 + 5


def test_a_generation_head_without_its_gate_is_refused():
    with pytest.raises(Exception, match="generation_head=GateHead must go with gates"):
        make("prediction=mixed", "prediction/generation_head=gate")()


class WrongSign(V):
    """The other sign of v in one direction."""

    def target(self, x0, eps, alpha, sigma):
        return -super().target(x0, eps, alpha, sigma)


class WrongScale(V):
    """The scale of eps."""

    def native_scale(self, snr):
        return snr


class Remembers(V):
    """Counts its estimates in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def estimate(self, out, x_t, alpha, sigma):
        self.count += 1
        return super().estimate(out, x_t, alpha, sigma)


class Forgets(V):
    """Follows what it observed, in an attribute that no checkpoint has."""

    shift = 0.0

    def observe(self, log_snr, errors):
        self.shift += 1.0

    def parts(self, *args):
        loss, scale = super().parts(*args)
        return type(super().parts(*args))(loss * (1 + 1e-9 * self.shift), scale)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (WrongSign, "of the target misses x0"),
        (WrongScale, "do not add up to the x0-loss"),
        (Remembers, "changed its state outside observe"),
        (Forgets, "parts differs after a resume"),
    ],
)
def test_the_contract_notices_broken_predictions(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_prediction(broken)
