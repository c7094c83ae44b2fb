"""Every preset at every scale: it may run, no length is longer than the run, and at paper scale it is the paper's."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.errors import MissingHere
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.validate import check
from tests.conf.test_options import composed, options

SCALES = [[], ["scale=small"], ["scale=smoke"]]
LENGTHS = {"total_steps", "target_steps", "warmup_steps", "update_every", "first"}  # something ends, or begins, then
# What the papers state, in optimizer steps.
PAPER = {
    "adaptive_beta/table1": {"annealing.warmup_steps": 5000, "keep_every": 200_000},
    "adaptive_beta/table1_cosine": {"annealing.warmup_steps": 5000, "keep_every": 200_000},
    "adaptive_beta/table1_cosine_ours": {"annealing.warmup_steps": 5000, "sampler.every": 40},
    "adaptive_beta/table2": {"keep_every": 26_042, "snapshot_every": 26_042},
    "adaptive_beta/table2_ours": {"keep_every": 26_042, "sampler.every": 40},
    "adaptive_beta/table3": {"keep_every": 200_000},
    "adaptive_beta/table3_ours": {"keep_every": 200_000, "sampler.every": 40},
    "adaptive_beta/table4 method=variance": {
        "annealing.warmup_steps": 5000,
        "sampler.first": 100,
        "sampler.images": 32,
    },
    "clts_mdlrc/table2": {"keep_every": 1_000_000},
    "clts_mdlrc/table2_ours": {"sampler.target_steps": 300_000, "annealing.total_steps": 4_000_000},
    "clts_mdlrc/table3 method=clts_mdlrc": {"sampler.target_steps": 50_000, "annealing.total_steps": 500_000},
    "clts_mdlrc/table3 method=fdm": {"weighting.warmup_steps": 400, "keep_every": 100_000},
}


def with_sweep(*overrides: str) -> list[list[str]]:
    """The overrides and, for an experiment, each value of what it sweeps in turn, beside the first of the others."""
    from hydra import compose

    with initialized():
        hydra = compose("train", overrides=list(overrides), return_hydra_config=True).hydra
    swept = {key: str(values).split(",") for key, values in (hydra.sweeper.params or {}).items()}
    first = {key: values[0] for key, values in swept.items()}
    jobs = [first, *({**first, key: value} for key, values in swept.items() for value in values[1:] if key != "seed")]
    return [[*overrides, *(f"{key}={value}" for key, value in job.items())] for job in jobs]


def lengths(cfg: DictConfig) -> dict[str, int]:
    """Dotted name -> steps, of all lengths anywhere in the configuration."""
    found: dict[str, int] = {}

    def walk(node: Any, path: str) -> None:
        for key, value in node.items() if isinstance(node, dict) else ():
            here = f"{path}.{key}" if path else str(key)
            if key in LENGTHS and isinstance(value, int):
                found[here] = value
            walk(value, here)

    walk(OmegaConf.to_container(cfg, resolve=True), "")
    return found


def assert_fits(words: list[str]) -> None:
    cfg = composed(*words)
    faults = [str(error) for error in check(cfg) if not isinstance(error, MissingHere)]
    assert faults == [], words
    too_long = {name: steps for name, steps in lengths(cfg).items() if steps > cfg.max_steps}
    assert too_long == {}, (words, cfg.max_steps)


AT_EVERY = ("clts_mdlrc", "learned_beta")  # the other methods' lengths are tried at 4 steps, or with all presets


def marks_of(method: str, scale: list[str]) -> list[Any]:
    """A length that fits 4 steps and 2000 fits those of `small`."""
    if method in AT_EVERY or scale == ["scale=smoke"]:
        return []
    return [pytest.mark.exhaustive if scale else pytest.mark.pages]


@pytest.mark.parametrize(
    ("method", "scale"),
    [
        pytest.param(
            method,
            scale,
            marks=marks_of(method, scale),
            id="-".join([method, *(scale or ["own"])]),
        )
        for method in options("method")
        for scale in SCALES
    ],
)
def test_every_method_fits_every_scale(method, scale):
    assert_fits([f"method={method}", *scale])


@pytest.mark.pages
@pytest.mark.parametrize("scale", SCALES, ids=lambda words: words[0] if words else "own")
@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_experiment_fits_every_scale(experiment, scale):
    jobs = with_sweep(f"experiment={experiment}", *scale)
    for words in jobs if not scale else jobs[:1]:  # of a scale, what is swept is a method, which the test above tries
        assert_fits(words)


@pytest.mark.parametrize("preset", PAPER)
def test_at_paper_scale_lengths_are_the_papers(preset):
    experiment, *more = preset.split(" ")
    cfg = composed(f"experiment={experiment}", *more)
    assert {key: OmegaConf.select(cfg, key) for key in PAPER[preset]} == PAPER[preset]
    assert cfg.metrics.num_samples == 50_000
    assert composed(f"experiment={experiment}", *more, "scale=small").metrics.num_samples == 5000


@pytest.mark.parametrize("base", ["ddim", "ddpm", "heun", "unipc"])
def test_guidance_over_any_solver_at_smoke_scale_takes_its_few_steps(base):
    from hydra.utils import instantiate

    words = ["scale=smoke", "solver=guided", f"solver@solver.base={base}"]
    cfg = composed(*words, "dataset.conditional=true", "dataset.label_dropout=0.1")
    assert [str(error) for error in check(cfg)] == []
    assert instantiate(cfg.solver, _convert_="all").base.steps == 4
