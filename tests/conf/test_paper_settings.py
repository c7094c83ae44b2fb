"""Every job of the papers' tables has the papers' settings, written down in `experiments/*/settings.yaml`.

The controls are configurations in which one key is changed: `differences` must name it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hydra.errors import InstantiationException
from omegaconf import DictConfig, ListConfig, OmegaConf

from diffusion_lab.cli.table_jobs import merged
from tests.conf.paper_jobs import Cell, cells, job, tables
from tests.conf.paper_keys import CHECKS
from tests.conf.paper_settings import Settings, differences, is_written, papers, settings_of
from tests.conf.test_options import composed

WRITTEN = [name for name in tables() if is_written(name)]  # a test names the others
CELLS = [(name, cell) for name in WRITTEN for cell in cells(tables()[name])]
LAST = {name: cells(tables()[name])[-1] for name in WRITTEN}  # quick; the others are of the pages' suite


def _settings(name: str, cell: Cell) -> Settings:
    paper, table = name.split("/")
    return settings_of(papers()[paper], table, cell)


def _entries(node: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, setting) of all settings below a node of a file."""
    for key, below in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(below, dict) and "value" in below:
            yield str(key), below
        else:
            yield from _entries(below)


def _names(sentences: list[str]) -> set[str]:
    return {sentence.split(":")[0] for sentence in sentences}


def test_the_files_have_every_table_and_no_other():
    missing = sorted(set(tables()) - set(WRITTEN))
    assert not missing, "write the paper's settings into experiments/PAPER/settings.yaml (CONTRIBUTING, a table)"
    assert len(WRITTEN) == sum(len(file["tables"]) for file in papers().values()), "a file has a table without a yaml"


@pytest.mark.parametrize("name", WRITTEN)
def test_the_files_have_every_row_and_no_other(name):
    paper, table = name.split("/")
    node = papers()[paper]["tables"][table]
    rows = papers()[paper]["tables"][node.get("as", table)]["rows"]
    assert set(rows) == {row.name for row in tables()[name].rows}


@pytest.mark.parametrize("paper", papers())
def test_every_setting_says_where_it_is_from_and_every_choice_why(paper):
    for _, entry in _entries(papers()[paper]):
        assert entry.keys() <= {"value", "from", "why", "otherwise"}, entry
        assert isinstance(entry["from"], str) and entry["from"], entry
        assert ("why" in entry) == (entry["from"] == "chosen"), entry


@pytest.mark.parametrize("name", WRITTEN)
def test_a_job_of_every_table_has_the_papers_settings(name):
    assert differences(_settings(name, LAST[name]), job(name, LAST[name])) == []


@pytest.mark.pages
@pytest.mark.parametrize(
    ("name", "cell"), CELLS, ids=[f"{name}-{cell.row}-{cell.column}-{cell.model}" for name, cell in CELLS]
)
def test_every_job_has_the_papers_settings(name, cell):
    assert differences(_settings(name, cell), job(name, cell)) == []


OURS = ("adaptive_beta/table1", "ours", "cosine")
SPEED = ("adaptive_beta/table1", "speed", "linear")
FULL = ("clts_mdlrc/table3", "ours", "cifar10")


@pytest.mark.parametrize(
    ("place", "key", "value", "setting"),
    [
        (OURS, "optimizer.lr", 1e-4, "lr"),
        (OURS, "optimizer.betas", [0.9, 0.99], "betas"),
        (OURS, "callbacks.ema.decays", [0.999], "ema_decay"),
        (OURS, "annealing.warmup_steps", 3000, "warmup_steps"),
        (OURS, "batch_size", 64, "batch"),
        (OURS, "max_steps", 700_000, "steps"),
        (OURS, "keep_every", 300_000, "evaluated_at"),
        (OURS, "network.dropout", 0.0, "dropout"),
        (OURS, "solver.steps", 250, "solver_steps"),
        (OURS, "gradient_clip", None, "gradient_clip"),
        (OURS, "schedule.num_timesteps", 4000, "T"),
        (OURS, "schedule.offset", 0.009, "schedule"),
        (OURS, "sampler.lr", 1e-2, "policy_lr"),
        (OURS, "sampler.num_selected", 4, "policy_selected"),
        (SPEED, "sampler.suppression", 4.0, "speed_suppression"),
        (SPEED, "weighting.gamma", 0.5, "weight_gamma"),
        (SPEED, "metrics.num_samples", 10_000, "samples"),
        (FULL, "sampler.mean", 0.4, "clts_mean"),
        (FULL, "sampler.target_steps", 100_000, "clts_target"),
        (FULL, "annealing.floor", None, "mdlrc_floor"),
        (FULL, "variance.vlb_weight", 1.0, "vlb_weight"),
        (FULL, "network.num_res_blocks", 2, "res_blocks"),
    ],
)
def test_one_changed_key_is_named(place, key, value, setting):
    name, cell = place[0], Cell(*place[1:])
    config = copy.deepcopy(job(name, cell))
    OmegaConf.update(config, key, value)
    follows = {"T": {"solver_steps"}, "res_blocks": {"parameters"}}  # steps null: all T
    found = _names(differences(_settings(name, cell), config))
    assert setting in found and found <= {setting} | follows.get(setting, set())


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["schedule=quadratic"], "schedule"),
        (["prediction=v"], "prediction"),
        (["variance=fixed_small"], "variance"),
        (["sampler=uniform", "weighting=unit"], "timesteps"),
        (["solver=ddim"], "solver"),
        (["dataset=celeba64"], "images"),
    ],
)
def test_another_part_is_named(words, setting):
    name, cell = SPEED[0], Cell(*SPEED[1:])
    config = composed(*merged(["experiment=adaptive_beta/table1", "schedule=linear", "method=speed", *words]))
    assert setting in _names(differences(_settings(name, cell), config))


PARTS = (
    "schedule prediction variance preconditioning weighting sampler optimizer annealing solver network callbacks.ema "
    "max_steps batch_size gradient_clip precision metrics.num_samples metrics.split dataset.flip dataset.conditional "
    "dataset.label_dropout"
).split()
# What no paper can state, with the reason.
ELSEWHERE = {
    "sampler.num_timesteps": "the schedule's T",
    "sampler.schedule": "the run's schedule",
    "sampler.reward_weights": "of the run's schedule, prediction and variance",
    "sampler.seed": "the run's seed",
    "solver.s_min": "acts on churn alone",
    "solver.s_max": "acts on churn alone",
    "solver.s_noise": "acts on churn alone",
    "optimizer.fused": "how, not what",
    "network.checkpointing": "memory for time, the same result",
}


def _leaves(config: DictConfig) -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of all numbers, words and lists in PARTS."""

    def walk(node: DictConfig, path: str) -> Iterator[tuple[str, Any]]:
        for key in node:
            here, value = f"{path}.{key}", node[key]
            if here in ELSEWHERE or key in ("_target_", "_partial_"):
                continue
            yield from walk(value, here) if isinstance(value, DictConfig) else [(here, value)]

    for path in PARTS:
        node = OmegaConf.select(config, path)
        yield from walk(node, path) if isinstance(node, DictConfig) else [(path, node)]


def _another(value: Any) -> Any:
    """A value of the same kind that is not the same."""
    if isinstance(value, ListConfig):
        return [_another(value[0]), *value[1:]]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return 1.5 * value + 0.1
    return 3 if value is None else f"{value}x"


def _unseen(name: str, cell: Cell, settings: Settings) -> list[str]:
    """Keys of a job that can be changed without a difference."""
    config = job(name, cell)
    settings = {name: entry for name, entry in settings.items() if name not in ("parameters", "shape")}
    unseen = []
    for key, value in _leaves(config):
        if key.startswith("metrics.") and "samples" not in settings:
            continue  # a paper without a metric
        other = copy.deepcopy(config)
        OmegaConf.update(other, key, _another(value))
        if not _found(settings, other, key):
            unseen.append(key)
    return unseen


def _found(settings: Settings, config: DictConfig, key: str) -> bool:
    if not key.startswith("schedule."):  # the same schedule, whose betas need not be computed again
        settings = {name: entry for name, entry in settings.items() if name != "schedule"}
    try:
        return differences(settings, config) != []
    except InstantiationException:  # the schedule's constructor refuses the value
        return True


@pytest.mark.pages
@pytest.mark.parametrize("name", WRITTEN)
def test_no_key_of_a_job_can_be_changed_unseen(name):
    assert _unseen(name, LAST[name], _settings(name, LAST[name])) == []


@pytest.mark.slow
def test_a_key_without_a_setting_is_seen():
    name, cell = FULL[0], Cell(*FULL[1:])
    settings = {key: entry for key, entry in _settings(name, cell).items() if key not in ("adam_eps", "clts_std")}
    assert _unseen(name, cell, settings) == ["sampler.std", "optimizer.eps"]


def test_every_name_is_used():
    assert {name for file in papers().values() for name, _ in _entries(file)} == set(CHECKS)
