"""Whether two configurations are the same run, and the keys in which they differ.

Where the images are is not compared here: `same_data` compares what they are with the run's record of them.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import config_folders, config_hash, plain, run_name, with_value, without
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.path_arguments import path_arguments
from diffusion_lab.cli.targets import own_folders
from diffusion_lab.cli.untrusted_run import recorded_content
from diffusion_lab.files import read_object
from diffusion_lab.runs.data_record import DataRecord
from diffusion_lab.runs.identity import MAY_CHANGE, filled, leaves, parts
from diffusion_lab.runs.names import RECORD, SWEEP, is_run

SOURCE = "dataset.source"


def check_same_run(cfg: DictConfig, saved: dict[str, Any], step: int, record: Any = None) -> None:
    """Check that a configuration may continue the checkpoint of another.

    Args:
        cfg: the configuration of now.
        saved: the other one.
        step: where the run stands.
        record: the content of the run's run.json. If that says what its images were, these may be in another place.

    Raises:
        InvalidConfig: names every key that differs, with both values.
    """
    known = isinstance(record, dict) and DataRecord.read(record.get("data")) is not None
    errors = [
        ConfigError(
            f"{key}={_short(now)} must equal the checkpoint's {_short(then)} to continue its run; "
            "restore it, or train into a new folder"
        )
        for key, (then, now) in differences(recorded_content(saved), cfg, not known).items()
    ]
    if cfg.max_steps < step:
        errors.append(ConfigError(f"max_steps={cfg.max_steps} must be at least {step}, where the run stands already"))
    if errors:
        raise InvalidConfig(errors)


def shorter_run(cfg: DictConfig, folder: Path) -> Path | None:
    """A run beside the folder of a new one that has fewer steps and otherwise is the same, so that it could go on to
    this one's end; None without one, and for a job of a sweep."""
    if (folder.parent / SWEEP).exists():
        return None
    for path in sorted(folder.parent.glob(f"{glob.escape(run_name(cfg))}-*/{RECORD}")):
        saved = (read_object(path) or {}).get("config")
        steps = saved.get("max_steps") if isinstance(saved, dict) else None
        with suppress(ConfigError):
            if type(steps) is int and steps < cfg.max_steps and not differences(recorded_content(saved), cfg):
                return path.parent
    return None


def run_with_common_latents(cfg: DictConfig, folder: Path) -> Path | None:
    """A run beside the folder of a new one that differs from it in `metrics.seed=0` alone, as one of version 0.1.0: the
    same training, evaluated on the latents of one seed for all runs; None without one."""
    if OmegaConf.select(cfg, "metrics.seed", default=0) is not None:
        return None
    name = run_name(cfg)  # which has nothing of the latents in it
    if all(path == folder for path in folder.parent.glob(f"{glob.escape(name)}-{'?' * 8}")):
        return None
    former = with_value(cfg, "metrics.seed", 0)
    path = folder.parent / f"{name}-{config_hash(former)[:8]}"
    return path if is_run(path) else None


def check_origin(cfg: DictConfig, saved: Any, key: str) -> None:
    """Check that a checkpoint, with the configuration `saved`, was written by the run of its folder, to which its
    results will be attributed; `key` is the setting and value that named the folder.

    Raises:
        ConfigError: it has no record, or the record of a run with another configuration.
    """
    if saved is None:
        raise ConfigError(f"{key}: the checkpoint must hold a run; it was written by another program")
    differ = differences(recorded_content(saved), cfg, with_places=False)
    if differ:
        name, (theirs, ours) = next(iter(differ.items()))
        raise ConfigError(
            f"{key}: the checkpoint must be this run's, and is of one with {name}={_short(theirs)} "
            f"where {RECORD} has {_short(ours)}; "
            "put each file back into the folder of its run"
        )


def differences(
    saved: DictConfig | dict[str, Any], cfg: DictConfig, with_places: bool = True
) -> dict[str, tuple[Any, Any]]:
    """{key: (saved, now)} of the keys that make the configurations different runs, in alphabetical order.

    with_places: whether the places of the images count, those of their caches included.
    """
    old, new = (leaves(filled(without(c))) for c in (saved, cfg))
    free = {*MAY_CHANGE} if with_places else {*MAY_CHANGE, *places_of(plain(cfg))}
    changed = [key for key in sorted(old | new) if old.get(key) != new.get(key)]
    differ = [key for key in changed if free.isdisjoint(itertools.accumulate(key.split("."), "{}.{}".format))]
    return {key: (old.get(key), new.get(key)) for key in differ}


def places_of(cfg: dict[str, Any]) -> Iterator[str]:
    """The keys of the arguments of the source, and of parts inside it, that name places."""
    dataset, folders = cfg.get("dataset"), own_folders(config_folders())
    source = dataset.get("source") if isinstance(dataset, dict) else None
    for path, node in parts(source) if isinstance(source, dict) else ():
        within = f"{SOURCE}.{path}".rstrip(".")
        yield from (
            f"{within}.{name}"
            for name, kind in path_arguments(str(node["_target_"]), folders).items()
            if kind != "name"
        )


def _short(value: Any) -> str:
    """The value as text; of a list of hundreds of numbers, such as a distribution, only its beginning and length."""
    text = str(value)
    return text if not isinstance(value, list) or len(text) <= 200 else f"{text[:40]}... ({len(value)} values)"
