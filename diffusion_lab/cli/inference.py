"""Load a trained model for `evaluate`, `sample` and `analyze`, with its device, layout and precision.

Errors in the settings that these commands share, in the run folder and in the machine are reported before anything is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.run_arguments import listed
from diffusion_lab.cli.compute import keep_freed_memory, lay_out, torch_threads
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, describe, nearest
from diffusion_lab.cli.moved_images import typed_places
from diffusion_lab.progress import waiting

if TYPE_CHECKING:
    from torch import nn

    from diffusion_lab.training import TrainedModel

DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def load_trained(cfg: DictConfig, reads_data: bool = True) -> TrainedModel:
    """The model that a command's `run`, `checkpoint` and `weights` name; `reads_data` as in `load.load_run`.

    Raises:
        ConfigError, InvalidConfig: one of them does not exist, or the run folder is damaged; what is wrong with the
            words, `checks.run_arguments` has found.
    """
    if "device" in cfg:  # not of `export`, which computes nothing
        check_machine(cfg)
    return _load(cfg, cfg.run, cfg.checkpoint, reads_data)


def load_several(cfg: DictConfig) -> list[TrainedModel]:
    """The models of a command whose `run` and `checkpoint` may be lists, run by run.

    A folder of runs means the finished runs in it, in the order of a report.

    Raises:
        ConfigError, InvalidConfig: as `load_trained`.
    """
    check_machine(cfg)
    folders = {folder.resolve(): folder for word in listed(cfg.run) for folder in run_folders(Path(word))}
    return [_load(cfg, folder, checkpoint) for folder in folders.values() for checkpoint in listed(cfg.checkpoint)]


def run_folders(folder: Path) -> list[Path]:
    """The finished runs in a folder of runs, at least one, else ConfigError; any other folder itself."""
    from diffusion_lab.runs.find import is_run, read_runs
    from diffusion_lab.runs.run import status_words

    if is_run(folder) or not folder.is_dir():
        return [folder]
    try:
        listing = read_runs(folder)
    except ValueError:  # it holds no run; loading it gives a better message
        return [folder]
    inside = [run for run in listing.runs if run.folder.resolve().is_relative_to(folder.resolve())]
    done = [run.folder for run in inside if run.status == "done"]
    if not done:
        counts = status_words(listing.runs)
        raise ConfigError(
            f"run={folder} must hold finished runs, and has {counts}; finish them, or name them one by one"
        )
    return done


def _load(cfg: DictConfig, folder: Path | str, checkpoint: Any, reads_data: bool = True) -> TrainedModel:
    from diffusion_lab.cli.load import load_run, trusted

    moved = typed_places(cfg)
    try:
        with waiting(f"loading {folder}"):
            return load_run(folder, str(checkpoint), str(cfg.weights), trusted(cfg), reads_data=reads_data, moved=moved)
    except (ConfigError, InvalidConfig, OmegaConfBaseException, HydraException):
        raise
    except Exception as error:  # a run folder is not trusted and may be damaged
        raise ConfigError(
            f"run={folder} must be a run that can be loaded ({describe(error)}); bring back a copy"
        ) from error


def check_machine(cfg: DictConfig) -> None:
    """Raise ConfigError unless this machine has the device, and the device supports the precision."""
    _check_precision(cfg.precision, pick_device(cfg.device))


def threads_of(cfg: DictConfig, *trained: TrainedModel) -> int | None:
    """The command's `threads`, else the fewest that a run was trained with; None for one per core."""
    recorded = [model.config.get("threads") for model in trained]
    return cfg.threads or min((n for n in recorded if type(n) is int and n >= 1), default=None)


@contextmanager
def ready(
    model: nn.Module, device: str, precision: str = "32-true", threads: int | None = None
) -> Iterator[torch.device]:
    """Move the model to its device; calls inside the context compute in `precision`, with float32 weights.

    Args:
        model: stays on the device afterwards.
        device: auto, cpu, cuda or cuda:1.
        precision: one of `DTYPES`, as in training.
        threads: of the CPU; None: as before.

    Raises:
        ConfigError: this machine does not have the device, or the device does not support the precision.
    """
    where = pick_device(device)
    _check_precision(precision, where)
    if where.type == "cpu":
        keep_freed_memory()
    dtype = DTYPES[precision]
    lay_out(model.to(where), None, precision, where.type == "cpu")
    with torch_threads(threads), torch.autocast(where.type, dtype, enabled=dtype != torch.float32):
        yield where


def _check_precision(precision: str, device: torch.device) -> None:
    if precision not in DTYPES:
        cure = nearest(str(precision), DTYPES) or "; use 32-true"
        raise ConfigError(f"precision={precision} must be one of {', '.join(DTYPES)}{cure}")
    if precision == "16-mixed" and device.type != "cuda":
        raise ConfigError("precision=16-mixed must be computed on a GPU, and device is not one; use bf16-mixed")


def pick_device(name: str) -> torch.device:
    """The device of this name; "auto" is the GPU if there is one.

    Raises:
        ConfigError: `name` is none of auto, cpu, cuda, cuda:N and mps, or this machine does not have the device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        hint = nearest(kind, ("auto", "cpu", "cuda", "mps"))
        raise ConfigError(f"device={name} must be auto, cpu, cuda, cuda:N or mps{hint}; use device=auto")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    there = {"cpu": 1, "cuda": gpus, "mps": int(torch.backends.mps.is_available())}[kind]
    if int(number or 0) >= there:
        has = f"has {there} GPUs, numbered from 0" if there else "has no GPU" if kind == "cuda" else "has none"
        raise ConfigError(f"device={name} must be a device of this machine, which {has}; use device=auto")
    return torch.device(name)
