"""Run and sweep folders in which nothing has run are removed again; what a run has written is never touched."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from omegaconf import DictConfig, OmegaConf


def forget_run(folder: Path) -> None:
    """Remove a run folder in which no run has started: without run.json it is no run."""
    if not folder.is_dir() or (folder / "run.json").exists() or (folder / "result.json").exists():
        return
    shutil.rmtree(folder / ".hydra", ignore_errors=True)
    for name in ("train.log", ".lock"):
        (folder / name).unlink(missing_ok=True)
    _remove_empty(folder)


def forget_sweep(folder: Path) -> None:
    """Remove what Hydra's sweeper writes before the first job, for a sweep that started none."""
    if not (folder / "sweep.json").exists():
        (folder / "multirun.yaml").unlink(missing_ok=True)
        _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    for empty in (folder, folder.parent):
        with suppress(OSError):  # it is not empty, or somebody else has removed it
            empty.rmdir()


def write_hydra_folder(folder: Path, cfg: DictConfig, hydra_cfg: DictConfig) -> None:
    """.hydra with the files that Hydra writes, but only for a configuration that has passed its checks."""
    target = folder / ".hydra"
    target.mkdir(parents=True, exist_ok=True)
    (target / "config.yaml").write_text(OmegaConf.to_yaml(cfg))
    (target / "hydra.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra_cfg})))
    (target / "overrides.yaml").write_text(OmegaConf.to_yaml(hydra_cfg.overrides.task))
