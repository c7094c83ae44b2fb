"""What a run is: names, hashes, `report` and `analyze` say the same about each key."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, cast

import pytest
from lightning.pytorch import Trainer
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.analyses.seeds import groups_of
from diffusion_lab.cli.config import config_hash, group_hash, plain
from diffusion_lab.cli.run_config_reader import read_run_config
from diffusion_lab.cli.same_run import differences
from diffusion_lab.reports import group_runs
from diffusion_lab.reports.comparison.differences import read_config_alone
from diffusion_lab.runs.identity import WITHOUT_EFFECT, effective, same_method
from diffusion_lab.runs.run import Run
from tests.analyses.models import Constant, source, trained

# Key -> the option that has it, where the default has not.
OF_OPTIONS = {
    "auxiliary.repa.encoder.batch_size": "auxiliary=repa",
    "dataset.source.cache_gb": "dataset=image_folder",
    "dataset.source.images.cache_gb": "dataset=celebahq256_latent",
}
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
    parent = key.rpartition(".")[0]
    if parent and (node := OmegaConf.select(other, parent)) is not None:  # a copy of its own, also of another key's
        OmegaConf.update(other, parent, node, merge=False)
    for place, new in {"seed": cfg.seed + 1, key: value}.items():
        OmegaConf.update(other, place, new, merge=False, force_add=True)
    return other


def in_one_group(runs: list[Run]) -> dict[str, bool]:
    """Whether each reader takes the runs for seeds of one method."""
    models = [replace(trained(Constant(), source(), folder=str(run.folder)), config=run.config) for run in runs]
    return {
        "hash": len({run.group_key for run in runs}) == 1,
        "report": len(group_runs(runs, read=read_run_config)) == 1,
        "analyze": len(groups_of(models)) == 1,
        "identity": same_method(runs[0].config, runs[1].config),
        "names": all(
            not r.differences
            for read_it in (read_run_config, read_config_alone)
            for r in group_runs(runs, read=read_it)
        ),
    }


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_a_key_without_effect_makes_no_other_method(composed: Any, key: str) -> None:
    cfg = composed(*filter(None, [OF_OPTIONS.get(key)]))
    runs = [recorded(cfg, Path("r/m-s0")), recorded(changed(cfg, key), Path("r/m-s1"))]
    assert all(in_one_group(runs).values()), in_one_group(runs)


def test_the_keys_without_effect_are_keys(composed: Any) -> None:
    """A key in the list that nothing has would hide that another one counts."""
    every = set().union(*(_places(plain(composed(*words))) for words in [[], *([one] for one in OF_OPTIONS.values())]))
    every |= {"hydra", *(f"trainer.{name}" for name in signature(Trainer).parameters)}
    # By the program, by a sweep with pruning, and by somebody who types it for the images of latents.
    added = {"dataset.accumulate", "callbacks.pruning", "dataset.source.images.cache_gb"}
    assert set(WITHOUT_EFFECT) <= every | added


def _places(node: Any, path: str = "") -> set[str]:
    """The dotted places of all nodes and leaves."""
    inner = [_places(value, f"{path}.{key}") for key, value in node.items()] if isinstance(node, dict) else []
    return {path.lstrip(".")}.union(*inner)


def test_a_path_that_begins_like_the_run_folder_is_another() -> None:
    run, other = (effective({"file": f"{name}/p.json", "paths": {"run_dir": "r/a"}}) for name in ("r/a", "r/ab"))
    assert (run["file"], other["file"]) == ("<run_dir>/p.json", "r/ab/p.json")


def test_a_key_that_only_one_of_two_runs_has_is_a_difference(composed: Any) -> None:
    cfg = composed()
    with_it = changed(cfg, "optimizer.weight_decay_of_another_optimizer")
    with_it.seed = cfg.seed
    for one, other in ((cfg, with_it), (with_it, cfg)):
        assert list(differences(one, other)) == ["optimizer.weight_decay_of_another_optimizer"]


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
    for read_it in (read_run_config, read_config_alone):
        assert [sorted(group.differences) for group in group_runs(runs, read=read_it)] == [["optimizer.lr"]] * 2
