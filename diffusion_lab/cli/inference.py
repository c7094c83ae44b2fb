"""A trained model as the commands that use one need it: loaded, on its device, in its layout and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.checks.setting import Setting, faults_of
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, describe, nearest
from diffusion_lab.cli.speed import lay_out

if TYPE_CHECKING:
    from diffusion_lab.cli.load import Trained
    from diffusion_lab.diffusion import Denoiser

# What the commands that use a trained model have in common.
SETTINGS = {
    "run": Setting(str, "use a run folder, e.g. run=runs/digits-uniform-s0-1a2b3c4d; see runs/"),
    "checkpoint": Setting(str, "use checkpoint=last"),
    "device": Setting(str, "use device=auto"),
}
LATENTS = {  # of commands that make samples themselves
    "seed": Setting(int, "use seed=0 for the default run", least=0),
    "batch_size": Setting(int, "use 64", least=1),
    "outdir": Setting(str, "give a folder, or null", null=True),
}
DTYPES = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


def load_trained(cfg: DictConfig) -> Trained:
    """The model that a command's `run`, `checkpoint` and `weights` name.

    Raises:
        ConfigError, InvalidConfig: one of them is no such thing, or the run folder is damaged.
    """
    from diffusion_lab.cli.load import load_run, trusted

    if cfg.run is None:
        raise ConfigError(f"run=null must be a run folder; {SETTINGS['run'].cure}")
    if faults := faults_of(cfg, SETTINGS):
        raise InvalidConfig(faults)
    pick_device(cfg.device)  # before anything is made or loaded
    try:
        return load_run(cfg.run, str(cfg.checkpoint), str(cfg.weights), trusted(cfg))
    except (ConfigError, InvalidConfig, OmegaConfBaseException, HydraException):
        raise
    except Exception as error:  # whatever lies in a run folder, which may come from elsewhere or be damaged
        raise ConfigError(
            f"run={cfg.run} must be a run that can be loaded ({describe(error)}); bring back a copy"
        ) from error


@contextmanager
def ready(denoiser: Denoiser, device: str, precision: str = "32-true") -> Iterator[torch.device]:
    """The denoiser on its device; calls of it inside compute in `precision`, with weights that stay float32.

    Args:
        denoiser: is moved, and stays there.
        device: auto, cpu, cuda or cuda:1.
        precision: one of `DTYPES`, as in training.

    Raises:
        ConfigError: there is no such device or precision here.
    """
    where = pick_device(device)
    if precision not in DTYPES:
        raise ConfigError(f"precision={precision} must be one of {', '.join(DTYPES)}; use 32-true")
    if precision == "16-mixed" and where.type != "cuda":
        raise ConfigError("precision=16-mixed must be computed on a GPU, and device is none; use bf16-mixed")
    dtype = DTYPES[precision]
    lay_out(denoiser.to(where).network, None, precision, where.type == "cpu")
    with torch.autocast(where.type, dtype, enabled=dtype != torch.float32):
        yield where


def pick_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one.

    Raises:
        ConfigError: another word than auto, cpu, cuda, cuda:N and mps, or a device that is not here.
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
