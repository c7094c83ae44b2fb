"""What a run is: names, hashes, `report` and `analyze` say the same about each key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.analyses.seeds import groups_of
from diffusion_lab.cli.config import config_hash, group_hash, plain
from diffusion_lab.cli.readings import read
from diffusion_lab.reports import group_runs
from diffusion_lab.reports.comparison.differences import read_plainly
from diffusion_lab.runs.identity import WITHOUT_EFFECT, same_method
from diffusion_lab.runs.run import Run
from tests.analyses.models import Constant, source, trained

OF_ANOTHER_METHOD = ("optimizer.lr", "batch_size", "sampler.mean", "dataset.seed", "callbacks.ema.decays")


def recorded(cfg: DictConfig, folder: Path) -> Run:
    """A finished run of a configuration."""
    info = {
        "config": plain(cfg),
        "seed": cfg.seed,
        "method": "m",
        "config_hash": config_hash(cfg),
        "group_hash": group_hash(cfg),
    }
    return Run(folder, "done", info=info)


def changed(cfg: DictConfig, key: str) -> DictConfig:
    """The configuration with the next seed and another value of a key."""
    other = cast(DictConfig, OmegaConf.merge(cfg))
    value = {"root": "elsewhere", "run_dir": "elsewhere/run"} if key == "paths" else 12345
    for place, new in {"seed": cfg.seed + 1, key: value}.items():
        OmegaConf.update(other, place, new, merge=False, force_add=True)
    return other


def in_one_group(runs: list[Run]) -> dict[str, bool]:
    """Whether each reader takes the runs for seeds of one method."""
    models = [replace(trained(Constant(), source(), folder=str(run.folder)), config=run.config) for run in runs]
    return {
        "hash": len({run.group_key for run in runs}) == 1,
        "report": len(group_runs(runs, read=read)) == 1,
        "analyze": len(groups_of(models)) == 1,
        "identity": same_method(runs[0].config, runs[1].config),
        "names": all(not r.differences for read_it in (read, read_plainly) for r in group_runs(runs, read=read_it)),
    }


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_a_key_without_effect_makes_no_other_method(composed: Any, key: str) -> None:
    cfg = composed()
    runs = [recorded(cfg, Path("r/m-s0")), recorded(changed(cfg, key), Path("r/m-s1"))]
    assert all(in_one_group(runs).values()), in_one_group(runs)


@pytest.mark.parametrize("key", OF_ANOTHER_METHOD)
def test_any_other_key_makes_one(composed: Any, key: str) -> None:
    cfg = composed()
    runs = [recorded(cfg, Path("r/m-s0")), recorded(changed(cfg, key), Path("r/m-s1"))]
    assert not any(in_one_group(runs).values()), in_one_group(runs)


def test_other_devices_are_in_no_label(composed: Any) -> None:
    """Two methods, one of which used another number of devices and threads."""
    cfg = composed()
    other = changed(changed(cfg, "trainer.devices"), "optimizer.lr")
    runs = [recorded(cfg, Path("r/a-s0")), recorded(other, Path("r/b-s1"))]
    for read_it in (read, read_plainly):
        assert [sorted(group.differences) for group in group_runs(runs, read=read_it)] == [["optimizer.lr"]] * 2
