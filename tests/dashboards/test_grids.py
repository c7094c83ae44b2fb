"""Grids contain every job once and no other."""

from __future__ import annotations

import itertools
import random

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from diffusion_lab.dashboards import Grid, grids, sweep_file
from diffusion_lab.dashboards.sweeps import HEAD


def jobs_of(grid: Grid) -> list[frozenset[str]]:
    """Its jobs, by enumeration."""
    varied = [[f"{key}={value}" for value in values] for key, values in grid.varied.items()]
    return [frozenset([*grid.words, *combination]) for combination in itertools.product(*varied)]


def test_a_product_is_one_grid() -> None:
    jobs = [[f"method={m}", "max_steps=10", f"seed={s}"] for m in ("p2", "ddpm") for s in range(3)]
    (grid,) = grids(jobs)
    assert grid == Grid({"max_steps": "10"}, {"method": ["p2", "ddpm"], "seed": ["0", "1", "2"]})


def test_a_hole_divides_and_other_keys_are_apart() -> None:
    found = grids([["a=1", "b=1"], ["a=1", "b=2"], ["a=2", "b=1"], ["a=2", "c=1"], ["~callbacks.ema"]])
    assert found == [
        Grid({"a": "1"}, {"b": ["1", "2"]}),
        Grid({"a": "2", "b": "1"}, {}),
        Grid({"a": "2", "c": "1"}, {}),
        Grid({"~callbacks.ema": None}, {}),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_any_jobs_are_the_union_of_their_grids(seed: int) -> None:
    draw = random.Random(seed)
    keys = [f"k{i}" for i in range(4)]
    jobs = [[f"{key}={draw.randrange(3)}" for key in keys if draw.random() < 0.9] for _ in range(30)]
    listed = [job for grid in grids(jobs) for job in jobs_of(grid)]
    assert len(listed) == len(set(listed)) and set(listed) == {frozenset(job) for job in jobs}


def test_the_sweep_calls_train_with_one_value_of_each_parameter() -> None:
    (grid,) = grids([["experiment=a/b", "logger=none", f"method={m}", f"seed={s}"] for m in ("x", "y") for s in (0, 1)])
    content = yaml.safe_load(sweep_file(grid, "a/b", "lab", ("is1k", "higher")))
    assert content["command"] == [
        *("diffusion-lab", "train", "logger=wandb", "logger.wandb.project=lab", "experiment=a/b"),
        "${args_no_hyphens}",
    ]
    assert content["parameters"] == {"method": {"values": ["x", "y"]}, "seed": {"values": ["0", "1"]}}
    assert content["metric"] == {"name": "metrics/is1k", "goal": "maximize"} and content["method"] == "grid"


def test_a_single_job_is_a_sweep_over_its_seed() -> None:
    content = yaml.safe_load(sweep_file(grids([["method=p2", "seed=3"]])[0], "n", "lab"))
    assert content["parameters"] == {"seed": {"values": ["3"]}} and "seed=3" not in content["command"]
    assert "metric" not in content


def test_wandb_fills_in_the_parameters_as_hydra_reads_them() -> None:
    utils = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    (grid,) = grids([["sampler.base.std=0.5", f"seed={s}"] for s in (0, 1)])
    command = yaml.safe_load(sweep_file(grid, "n", "lab"))["command"]
    args = utils.create_sweep_command_args({"args": {"seed": {"value": "1"}}})
    entry, filled = utils.make_launch_sweep_entrypoint(args, command)
    assert [*entry, *filled][-2:] == ["sampler.base.std=0.5", "seed=1"]


NAMES = [
    "a\nprogram: evil",
    "a # b",
    "it's",
    "'",
    "a: b",
    "${x}",
    "x\n- y",
    "\u2028",
    "a,b",
    "[a]",
    "null",
    "1e5",
    "true",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_adds_nothing_to_the_file_of_a_sweep(name):
    """Comments are fixed, and every value is written by the yaml library."""
    text = sweep_file(grids([["method=p2", f"x={name}", "seed=3"]])[0], name, name, (name, "lower"))
    content = yaml.safe_load(text)
    assert [line for line in text.splitlines() if line.startswith("#")] == HEAD.splitlines()
    assert (content["name"], content["project"], content["metric"]["name"]) == (name, name, f"metrics/{name}")
    assert content["program"] == "diffusion-lab" and f"x={name}" in content["command"]
    (word,) = [word for word in content["command"] if word.startswith("logger.wandb.project=")]
    if "\n" not in name and "${" not in name and name != "\u2028":
        value = OverridesParser.create().parse_override(word).value()
        assert getattr(value, "text", value) == name


def test_a_recorded_logger_does_not_come_back_under_another_spelling():
    (grid,) = grids([["+logger.wandb.project=theirs", "++logger=other", "logger=wandb", "seed=1"]])
    command = yaml.safe_load(sweep_file(grid, "n", "lab"))["command"]
    assert [word for word in command if "logger" in word] == ["logger=wandb", "logger.wandb.project=lab"]
