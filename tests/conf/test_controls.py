"""The rows of the papers' ablations and our controls, as they are typed: each differs from its method in one thing, and
has the distribution, learning rate and beta1 of its closed form."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

from diffusion_lab.cli.checks.nodes import check_nodes
from diffusion_lab.cli.config import compose_train, conf_dir, config_hash, run_name
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.cli.targets import Trust
from diffusion_lab.testing import check_sampler

slow = functools.partial(pytest.param, marks=pytest.mark.slow)
second = functools.partial(pytest.param, marks=[pytest.mark.slow, pytest.mark.exhaustive])
# A control, the method that it is a control of, and the only keys in which they differ.
ONE_THING = [
    ("method=learned_beta_shuffled", "method=learned_beta", {"sampler.rewards"}),
    ("method=learned_beta_zero", "method=learned_beta", {"sampler.rewards"}),
    ("method=learned_beta_released sampler/rewards=zero", "method=learned_beta_released", {"sampler.rewards"}),
    ("method=min_snr_learned_beta sampler/rewards=shuffled", "method=min_snr_learned_beta", {"sampler.rewards"}),
    *[
        (f"method=learned_beta sampler.num_selected={size}", "method=learned_beta", {"sampler.num_selected"})
        for size in (1, 10, "${schedule.num_timesteps}")
    ],
    ("method=speed_without_dual", "method=speed", {"sampler.dual"}),
    ("method=speed_sampling_only", "method=speed", {"weighting"}),
    ("method=speed_weighting_only", "method=speed", {"sampler"}),
    ("method=slots_distribution_only", "method=slots", {"sampler.stratify"}),
    ("method=slots_mixing_only", "method=slots", {"sampler"}),
    ("method=mdlrc annealing.compensate=false", "method=mdlrc", {"annealing.compensate"}),
    ("method=clts_mdlrc", "method=mdlrc", {"sampler"}),
    ("method=clts_mdlrc", "method=clts", {"annealing", "optimizer.betas"}),
    ("method=ddpm annealing=constant_beta1", "method=ddpm", {"annealing"}),
    ("method=ddpm annealing=linear_control", "method=ddpm", {"annealing"}),
    ("method=mdlrc", "method=ddpm", {"annealing", "optimizer.betas"}),
    *[(f"method=clts sampler.mean={mean}", "method=clts", {"sampler.mean"}) for mean in (0.1, 0.9)],
    ("method=clts sampler.target_steps='${share:0.02,${max_steps}}'", "method=clts", {"sampler.target_steps"}),
]


@functools.cache
def of_options(*words: str) -> DictConfig:
    return compose_train(words, Path("runs/run"))


def composed(words: str) -> DictConfig:
    """The configuration of `diffusion-lab train WORDS`. Options are composed once each, because that takes the time."""
    options = [word for word in words.split() if (conf_dir() / word.split("=")[0]).is_dir()]
    values = [word for word in words.split() if word not in options]
    cfg = copy.deepcopy(of_options(*options))
    ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(values), cfg)
    return cfg


def written(cfg: DictConfig) -> Any:
    """Without resolving, so that a part counts once, and not also where another one refers to it."""
    return OmegaConf.to_container(cfg, resolve=False)


def differences(a: Any, b: Any, path: str = "") -> set[str]:
    """Dotted keys at which two configurations differ, a part of another class as one, without Hydra's own node."""
    if not (isinstance(a, dict) and isinstance(b, dict)) or a.get("_target_") != b.get("_target_"):
        return set() if a == b else {path}
    keys = (a.keys() | b.keys()) - {"hydra"}
    return {key for k in keys for key in differences(a.get(k), b.get(k), f"{path}.{k}" if path else k)}


@pytest.mark.parametrize(("control", "method", "expected"), ONE_THING)
def test_a_control_differs_from_its_method_in_one_thing(control: str, method: str, expected: set[str]) -> None:
    cfg, other = composed(control), composed(method)
    assert differences(written(cfg), written(other)) == expected
    assert config_hash(cfg) != config_hash(other)
    with open_dict(cfg):
        del cfg["hydra"]
    assert check_nodes(with_metrics(cfg), Trust()) == []


def test_a_control_is_named_after_its_method_and_is_the_same_run_as_the_option_it_stands_for() -> None:
    words = {
        "learned_beta_zero": "method=learned_beta sampler/rewards=zero",
        "learned_beta_shuffled": "method=learned_beta sampler/rewards=shuffled",
        "speed_without_dual": "method=speed sampler.dual=false",
        "slots_distribution_only": "method=slots sampler.stratify=false",
        "slots_mixing_only": "base=ddpm sampler=stratified",
    }
    for method, longer in words.items():
        cfg = composed(f"method={method}")
        assert run_name(cfg) == f"digits-{method}-s0" and config_hash(cfg) == config_hash(composed(longer))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("diffusion_lab.timesteps.Uniform", "must be a Rewards"),
        ("diffusion_lab.timesteps.Rewards", "must be a concrete Rewards"),
        ("os.system", "must be a class of diffusion_lab"),
    ],
)
def test_nothing_but_rewards_stands_where_rewards_are_expected(target: str, words: str) -> None:
    cfg = composed("method=learned_beta_zero")
    with open_dict(cfg):
        del cfg["hydra"]
    cfg.sampler.rewards._target_ = target
    (error,) = check_nodes(with_metrics(cfg), Trust())
    assert str(error).startswith(f"sampler.rewards._target_={target} {words}")


@pytest.mark.parametrize(
    "words",
    [
        slow("method=learned_beta_shuffled"),
        second("method=learned_beta_zero"),
        second("method=learned_beta_released sampler/rewards=shuffled"),
        second("method=learned_beta sampler.num_selected=${schedule.num_timesteps}"),
        "method=slots_distribution_only sampler.num_slots=8",
        "method=speed_without_dual",
    ],
)
def test_the_sampler_of_a_control_keeps_the_contract(words: str) -> None:
    small = "max_steps=40 schedule.num_timesteps=40 batch_size=64"
    hidden = "" if "learned_beta" not in words else "sampler.hidden=8 sampler.every=5"
    parts = RunParts(composed(f"{words} {small} {hidden}"))
    check_sampler(lambda: parts.fresh()["sampler"], updates=6 if hidden else 20)


# tau -> (beta1, lr/l0), by hand from equations 9 and 10 with beta1 = 0.8, without the floor and with the floor 0.4.
TAUS = (0.0, 0.25, 0.5, 0.75, 0.9)
FREE = {0.0: (0.8, 1.0), 0.25: (0.75, 0.8), 0.5: (2 / 3, 0.6), 0.75: (0.5, 0.4), 0.9: (2 / 7, 0.28)}
FLOORED = FREE | {0.9: (0.4, 1 / 3)}
MOMENTUM = {
    "method=ddpm": {tau: (0.9, 1.0) for tau in TAUS},
    "method=mdlrc annealing.compensate=false": {tau: (FLOORED[tau][0], 1.0) for tau in TAUS},
    "method=mdlrc": FLOORED,
    "method=clts_mdlrc": FLOORED,
    "method=mdlrc annealing.decay=false": {tau: (0.8, FLOORED[tau][1]) for tau in TAUS},
    "method=mdlrc annealing.floor=null": FREE,
    "method=ddpm annealing=constant_beta1": {tau: (0.8, 1.0) for tau in TAUS},
    "method=ddpm annealing=linear_control": {tau: (0.8, 1 - 0.8 * tau) for tau in TAUS},
    "method=iddpm annealing=constant_beta1": {tau: (0.8, 1.0) for tau in TAUS},
    "method=iddpm annealing=linear_control": {tau: (0.8, 1 - 0.8 * tau) for tau in TAUS},
}


@pytest.mark.parametrize("words", MOMENTUM)
def test_learning_rate_and_beta1_of_the_momentum_rows(words: str) -> None:
    cfg = composed(f"{words} max_steps=4000 optimizer.lr=3e-4")
    annealing, own = part(cfg, "annealing"), cfg.optimizer.betas[0]
    for tau, (beta1, factor) in MOMENTUM[words].items():
        hyper = annealing(round(4000 * tau))
        assert cfg.optimizer.lr * hyper.lr_factor == pytest.approx(3e-4 * factor)
        assert (own if hyper.beta1 is None else hyper.beta1) == pytest.approx(beta1)
    assert cfg.optimizer.betas[1] == 0.999


@pytest.mark.slow
@pytest.mark.parametrize("other", ["method=iddpm annealing=constant_beta1", "method=iddpm annealing=linear_control"])
def test_the_momentum_rows_of_the_papers_table_differ_in_nothing_else(other: str) -> None:
    """Of Table 3, whose schedule, variance and network are the experiment's."""
    table = [composed(f"experiment=clts_mdlrc/table3 {words}") for words in ("method=mdlrc", other)]
    assert differences(*map(written, table)) == {"annealing", "optimizer.betas"}


@pytest.mark.parametrize("mean", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("target", [0.02, 0.1, 0.2, 0.5, 1.0])
def test_the_curriculum_rows_are_a_mixture_of_a_uniform_and_a_gaussian_distribution(mean: float, target: float) -> None:
    """p_t = (1 - g)/T + g N_t with g = min(1, step/(target max_steps)), mu = round(mean T) and deviation T."""
    share = f"sampler.target_steps='${{share:{target},${{max_steps}}}}'"
    sampler = part(composed(f"method=clts sampler.mean={mean} {share} max_steps=5000"), "sampler")
    normal = [math.exp(-0.5 * ((t - round(1000 * mean)) / 1000) ** 2) for t in range(1000)]
    for step in (0, 50, 1000, 2500, 5000):
        g = min(1.0, step / (target * 5000))
        expected = [(1 - g) / 1000 + g * n / sum(normal) for n in normal]
        torch.testing.assert_close(sampler.probabilities(step), torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize(("size", "allowed"), [("1", 1), ("3", 3), ("10", 10), ("${schedule.num_timesteps}", 500)])
def test_the_numbers_of_selected_timesteps(size: str, allowed: int) -> None:
    sampler = part(composed(f"method=learned_beta sampler.num_selected={size} schedule.num_timesteps=500"), "sampler")
    assert sampler.selected.tolist() == list(range(allowed))


@pytest.mark.parametrize("size", [0, 1001])
def test_more_selected_timesteps_than_there_are(size: int) -> None:
    cfg = composed(f"method=learned_beta sampler.num_selected={size}")
    words = rf"^sampler.num_selected={size} must be an integer in \[1, 1000\]; use 3 as published, or"
    with pytest.raises(ValueError, match=words):
        part(cfg, "sampler")
