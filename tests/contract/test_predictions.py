"""The prediction contract over every file of conf/prediction and over every rule of the mixed one."""

from pathlib import Path

import pytest
import torch
from hydra import compose
from hydra.utils import instantiate
from omegaconf import OmegaConf

from diffusion_lab.cli.checks.nodes import check_nodes
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.targets import Trust
from diffusion_lab.diffusion import V
from diffusion_lab.diffusion.generation_heads import GenerationHead
from diffusion_lab.diffusion.head_gates import Granularity, Reduction, Space
from diffusion_lab.testing import check_prediction

FOLDER = Path(conf_dir(), "prediction")


def rule(name: str, kind: str, **arguments: float) -> list[str]:
    """The words that put a class in the place of a rule."""
    words = [f"prediction.{name}._target_=diffusion_lab.diffusion.{kind}"]
    return words + [f"+prediction.{name}.{key}={value}" for key, value in arguments.items()]


GATE = rule("reduction", "LearnedGate", lr=0.1, bins=20)
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
# Every class of each rule of the mixed prediction with its arguments. Most have no file in conf.
RULES = [
    *(rule("space", name) for name in ("EpsSpace", "NativeSpace", "VSpace", "X0Space")),
    *(rule("granularity", name) for name in ("PerBatch", "PerBin", "PerPixel", "PerSample")),
    rule("reduction", "HardMin"),
    rule("reduction", "MeanOfHeads"),
    rule("reduction", "SoftMin", temperature=0.1),
    rule("reduction", "WarmupMin", steps=10000),
    GATE,
    rule("generation_head", "AverageHead"),
    rule("generation_head", "BestHead"),
    [*GATE, *rule("generation_head", "GateHead")],
    rule("generation_head", "LeastSquaresHead", ridge=0.05),
    rule("generation_head", "SNRHead"),
]


def make(*overrides: str):
    register_resolvers()
    with initialized():
        cfg = compose("train", overrides=list(overrides))
    assert check_nodes(OmegaConf.masked_copy(cfg, ["prediction"]), Trust()) == []
    return lambda: instantiate(cfg.prediction, _convert_="all")


@pytest.mark.parametrize("name", NAMES)
def test_every_prediction_keeps_the_contract(name):
    check_prediction(make(f"prediction={name}"))


@pytest.mark.parametrize("rule", RULES, ids=" ".join)
def test_every_rule_of_the_mixed_prediction_keeps_the_contract(rule):
    check_prediction(make("prediction=mixed", *rule))


def test_all_are_covered():
    assert {"eps", "x0", "v", "mixed", "mixed_paper", "combined"} <= set(NAMES)
    written = " ".join(word for rule in RULES for word in rule)
    for base in (Space, Granularity, Reduction, GenerationHead):
        ours = [kind.__name__ for kind in base.__subclasses__() if kind.__module__.startswith("diffusion_lab.")]
        assert ours and not [name for name in ours if f".{name}" not in written]


def test_a_generation_head_without_its_gate_is_refused():
    with pytest.raises(Exception, match="generation_head=GateHead must go with gates"):
        make("prediction=mixed", *rule("generation_head", "GateHead"))()


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
