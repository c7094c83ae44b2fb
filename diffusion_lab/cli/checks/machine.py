"""What this machine and the run folder must have: devices, a precision that they compute in, room on the disk, and no
other run in the folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, nearest
from diffusion_lab.cli.processes import batch_fault, gpu_count, local_devices

ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
MARGIN = 50_000_000  # bytes that shall stay free for logs and sample grids
ADAM_STATES, BYTES = 2, 4  # tensors per parameter in the optimizer, bytes per float32


def check_machine(cfg: DictConfig, here: bool = True) -> list[ConfigError]:
    """Accelerator, devices, strategy, batch and precision, against this machine if the run takes place `here`."""
    trainer, errors = cfg.trainer, []
    accelerator, devices = trainer.get("accelerator", "auto"), trainer.get("devices", 1)
    if accelerator not in ACCELERATORS:
        hint = nearest(str(accelerator), ACCELERATORS)
        errors.append(f"trainer.accelerator={accelerator} must be one of {', '.join(ACCELERATORS)}{hint}")
    if local_devices(trainer) < 1:
        errors.append(f"trainer.devices={devices} must be at least one device; use trainer.devices=1")
    elif here and accelerator in ("gpu", "cuda") and gpu_count() == 0:
        errors.append(f"trainer.accelerator={accelerator} must find a GPU, and this machine has none; use trainer=cpu")
    elif here and accelerator in ("gpu", "cuda") and local_devices(trainer) > gpu_count():
        errors.append(f"trainer.devices={devices} must be at most the {gpu_count()} GPUs of this machine; use fewer")
    errors += _check_strategy(cfg)
    if fault := batch_fault(cfg):
        errors.append(fault)
    on_cpu = accelerator == "cpu" or (here and accelerator == "auto" and gpu_count() == 0)
    if on_cpu and str(cfg.precision).startswith("16-"):
        errors.append(f"precision={cfg.precision} must be computed on a GPU, and this run has none; use bf16-mixed")
    return [ConfigError(error) for error in errors]


def _check_strategy(cfg: DictConfig) -> list[str]:
    strategy = cfg.trainer.get("strategy", "auto")
    if not isinstance(strategy, str):
        return []
    from lightning.pytorch.strategies import StrategyRegistry

    names = ["auto", *StrategyRegistry.available_strategies()]
    if strategy in names:
        return []
    short = [name for name in names if name.count("_") < 2]
    return [f"trainer.strategy={strategy} must be one of {', '.join(short)}{nearest(strategy, names)}; use auto"]


def checkpoint_bytes(cfg: DictConfig, parameters: int) -> int:
    """Size of one checkpoint: the weights, their averages and the optimizer's state, in float32."""
    ema = cfg.callbacks.get("ema")
    averages = len(ema.get("decays", [])) if ema is not None else 0
    return parameters * BYTES * (1 + averages + ADAM_STATES)


def checkpoints_kept(cfg: DictConfig) -> int:
    """Checkpoints on the disk at the end of the run: the newest two and the numbered ones."""
    rolling = 2 if cfg.checkpoint_every else 1
    return rolling + (cfg.max_steps // cfg.keep_every if cfg.keep_every else 0)


def check_disk(cfg: DictConfig, parameters: int) -> list[ConfigError]:
    """The run folder can be written, and its checkpoints fit, with one more while it is being written."""
    folder = Path(cfg.paths.root).absolute()
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return [ConfigError(f"paths.root={cfg.paths.root} must be a folder that you may write to; set another one")]
    need = checkpoint_bytes(cfg, parameters) * (checkpoints_kept(cfg) + 1) + MARGIN
    free = shutil.disk_usage(folder).free
    if free >= need:
        return []
    return [
        ConfigError(
            f"paths.root={cfg.paths.root} must have {need / 1e9:.2f} GB free for {checkpoints_kept(cfg)} checkpoints, "
            f"and has {free / 1e9:.2f} GB; set another folder, or keep_every=0 to keep only the newest two"
        )
    ]


def check_folder(cfg: DictConfig) -> list[ConfigError]:
    """The run folder is empty, or holds a run of this very configuration."""
    from diffusion_lab.cli.train import check_same_run

    folder = Path(cfg.paths.run_dir)
    record = folder / "run.json"
    if not record.is_file():
        return []
    try:
        saved = json.loads(record.read_text())
        if saved["config_hash"] == config_hash(cfg):
            return []
        check_same_run(cfg, saved["config"], step=0)
    except InvalidConfig as error:
        told = "set hydra.run.dir to a new folder, or restore the values that it was started with"
        return [ConfigError(f"hydra.run.dir={folder} holds another run; {told}"), *error.errors]
    except (ValueError, KeyError, TypeError) as error:
        return [ConfigError(f"hydra.run.dir={folder} must hold an undamaged run.json ({error}); remove it")]
    return []
