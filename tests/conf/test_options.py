"""Every yaml file composes, and says exactly what its class takes, in that order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from hydra import compose
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

from diffusion_lab.cli.checks.annotations import SPECIAL
from diffusion_lab.cli.checks.nodes import check_nodes
from diffusion_lab.cli.checks.settings import check_settings, part_groups
from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.targets import Trust, resolve
from tests.ddp.test_methods import METHODS

CONF = conf_dir()
PRESETS = ("base", "method", "experiment", "scale", "debug")


def options(group: str) -> list[str]:
    pattern = "**/*.yaml" if group in PRESETS else "*.yaml"  # a folder in another group is a group: prediction/space
    return sorted(str(path.relative_to(CONF / group).with_suffix("")) for path in (CONF / group).glob(pattern))


OPTIONS = {group: options(group) for group in part_groups()}
# The first option of every group, then the second of every group: as many compositions as the largest group has.
ROUNDS = [
    {group: names[i % len(names)] for group, names in OPTIONS.items()} for i in range(max(map(len, OPTIONS.values())))
]


def composed(*overrides: str) -> DictConfig:
    register_resolvers()
    with initialized(CONF):
        cfg = compose("train", overrides=list(overrides))
    with open_dict(cfg):
        cfg.paths.run_dir = "run"
    return cfg


def faults(cfg: DictConfig) -> list[str]:
    complete = with_metrics(cfg)
    found = [*check_settings(cfg), *check_nodes(complete, Trust())]
    return [str(error) for error in found]


@pytest.mark.parametrize("round", range(len(ROUNDS)))
def test_every_option_composes_and_fits_its_signature(round: int) -> None:
    assert faults(composed(*(f"{group}={name}" for group, name in ROUNDS[round].items()))) == []


LARGE = ("method", "experiment")  # test_scales.py checks these as a run does, in one suite or the other


@pytest.mark.parametrize(
    "group", [pytest.param(g, marks=[pytest.mark.pages] * (g in LARGE)) for g in ("averaging", *PRESETS)]
)
def test_every_preset_composes_and_fits(group: str) -> None:
    assert options(group)
    for name in options(group):
        assert faults(composed(f"{group}={name}")) == [], name


def test_every_metric_composes_under_its_own_name() -> None:
    names = options("metric")
    cfg = composed(f"metrics.names=[{','.join(names)}]")
    assert faults(cfg) == []
    made = instantiate(with_metrics(cfg).metrics, _convert_="all").metrics
    assert [metric.name for metric in made] == names
    assert cfg.metrics.names == names and "metric" not in cfg  # what is hashed and recorded stays as it was typed


@pytest.mark.parametrize("group", [*OPTIONS, "averaging", "metric", "dataset/base"])
def test_keys_stand_in_the_order_of_the_signature(group: str) -> None:
    for name in options(group):
        node = OmegaConf.load(CONF / group / f"{name}.yaml")
        if group == "dataset":  # whose target stands in its base
            node = OmegaConf.merge({"_target_": "diffusion_lab.data.ImageDataModule"}, node)
        _check_order(node, f"{group}/{name}")


def _check_order(node: object, where: str) -> None:
    if not isinstance(node, DictConfig):
        return
    for key in node:
        if not OmegaConf.is_interpolation(node, key) and not OmegaConf.is_missing(node, key):
            _check_order(node[key], where)
    if "_target_" not in node or node["_target_"].startswith("lightning."):  # somebody else's order
        return
    order = list(inspect.signature(resolve(where, node["_target_"], Trust())).parameters)
    # names stand for metrics
    keys = ["metrics" if key == "names" else key for key in node if key not in SPECIAL and key != "defaults"]
    assert keys == sorted(keys, key=order.index), where


def test_self_stands_first_so_that_presets_win() -> None:
    text = (CONF / "train.yaml").read_text()
    assert re.search(r"defaults:\n\s+- _self_", text)
    assert composed("scale=smoke").max_steps == 4
    assert composed("scale=smoke", "max_steps=9").max_steps == 9


def test_what_the_user_types_wins_over_a_preset() -> None:
    assert composed("method=min_snr", "sampler=logit_normal").sampler["_target_"].endswith("LogitNormal")


def test_every_comment_of_a_top_level_setting_is_there() -> None:
    """`train --help` prints these comments; a setting without one would be listed without an explanation."""
    for line in (CONF / "train.yaml").read_text().splitlines():
        if re.match(r"\w+: \S", line):
            assert "#" in line, line


# Methods that tests/ddp/test_methods.py trains need no second training.
TWINS = [f"debug={name}" for name in options("debug")] + [
    pytest.param(f"method={name}", marks=pytest.mark.exhaustive if name in METHODS else ())
    for name in options("method")
]


@pytest.mark.slow
@pytest.mark.parametrize("preset", TWINS)
def test_the_smoke_twin_of_every_preset_trains_two_steps(preset: str, tmp_path: Path) -> None:
    from diffusion_lab.cli.main import main
    from tests.harness import Child

    overrides = [preset, "scale=smoke", "max_steps=2", "network.base_channels=8", "trainer.accelerator=cpu"]

    def work() -> None:
        raise SystemExit(main(["train", *overrides, f"hydra.run.dir={tmp_path}/run"]))

    Child(work, tmp_path / "log").succeed()
    assert (tmp_path / "run" / "result.json").is_file()
