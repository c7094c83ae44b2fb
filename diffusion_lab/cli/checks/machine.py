"""Checks of the machine and the run folder: devices, precision, free disk space, and no other run in the folder."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from diffusion_lab.cli.checks.typed_keys import with_keys_to_type
from diffusion_lab.cli.compute import compiler_fault
from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, MissingHere, nearest, once
from diffusion_lab.cli.output_folders import check_run_folder
from diffusion_lab.cli.processes import batch_fault, gpu_count, local_devices, on_cpu, srun_tasks
from diffusion_lab.cli.same_run import check_same_run
from diffusion_lab.runs.record import read_record

ACCELERATORS = ("auto", "cpu", "gpu", "cuda", "mps")
MARGIN = 50_000_000  # bytes to keep free for logs and sample grids
BYTES = 4  # per float32


def check_machine(cfg: DictConfig, here: bool = True) -> list[ConfigError]:
    """Errors of accelerator, devices, strategy, batch and precision, for this machine if the run takes place `here`."""
    return list(_machine_errors(cfg, here))


def _machine_errors(cfg: DictConfig, here: bool) -> Iterator[ConfigError]:
    trainer = cfg.trainer
    accelerator, devices = trainer.get("accelerator", "auto"), trainer.get("devices", 1)
    cpu = accelerator == "cpu" or (here and on_cpu(trainer))
    if accelerator not in ACCELERATORS:
        hint = nearest(str(accelerator), ACCELERATORS)
        yield ConfigError(f"trainer.accelerator={accelerator} must be one of {', '.join(ACCELERATORS)}{hint}")
    if fault := _unnamed_devices(devices, cpu):
        yield ConfigError(fault)
        return
    if here and (fault := _alone(trainer)):
        yield MissingHere(fault)
    if local_devices(trainer) < 1:
        yield ConfigError(f"trainer.devices={devices} must be at least one device; use trainer.devices=1")
    elif here and accelerator in ("gpu", "cuda") and gpu_count() == 0:
        yield MissingHere(
            f"trainer.accelerator={accelerator} must have a GPU, and this machine has none; use trainer=cpu"
        )
    elif here and accelerator in ("gpu", "cuda") and local_devices(trainer) > gpu_count():
        yield MissingHere(
            f"trainer.devices={devices} must be at most the {gpu_count()} GPUs of this machine; use fewer"
        )
    for fault in filter(None, (_strategy_fault(cfg), batch_fault(cfg))):
        yield ConfigError(fault)
    if here and (fault := compiler_fault(cfg)):
        yield MissingHere(fault)
    if cpu and str(cfg.precision).startswith("16-"):
        kind = ConfigError if accelerator == "cpu" else MissingHere
        yield kind(f"precision={cfg.precision} must be computed on a GPU, and this run has none; use bf16-mixed")
    elif str(cfg.precision).startswith("16-") and cfg.optimizer.get("fused") and cfg.gradient_clip:
        yield ConfigError(
            f"optimizer.fused=true must be false with precision={cfg.precision} and gradient_clip={cfg.gradient_clip}, "
            "because it unscales gradients after they are clipped; use optimizer.fused=false or precision=bf16-mixed"
        )


def _unnamed_devices(devices: Any, cpu: bool) -> str | None:
    """The message for devices that are neither a number nor, on a GPU, ids."""
    words = str(devices) if isinstance(devices, int | str) else ""
    if re.fullmatch(r"auto|-?\d+" if cpu else r"auto|-?\d+(,\d+)*,?", words):
        return None
    if not cpu and isinstance(devices, ListConfig) and all(type(number) is int for number in devices):
        return None
    allowed = "a number of processes on a CPU" if cpu else "a number of GPUs or their ids, e.g. [0,1]"
    return f"trainer.devices={devices} must be {allowed}; use trainer.devices=1"


def _alone(trainer: DictConfig) -> str | None:
    """The message for a run on several nodes that is started only on this one, and would wait for the others."""
    nodes = trainer.get("num_nodes", 1)
    if not isinstance(nodes, int) or nodes < 2 or srun_tasks() or os.environ.get("MASTER_ADDR"):
        return None
    return (
        f"trainer.num_nodes={nodes} must be started on each node by srun or torchrun, or with MASTER_ADDR and "
        "NODE_RANK set; use trainer.num_nodes=1 here"
    )


def _strategy_fault(cfg: DictConfig) -> str | None:
    strategy = cfg.trainer.get("strategy", "auto")
    if not isinstance(strategy, str):
        return None
    from lightning.pytorch.strategies import StrategyRegistry

    names = ["auto", *StrategyRegistry.available_strategies()]
    if strategy in names:
        return None
    short = [name for name in names if name.count("_") < 2]
    return f"trainer.strategy={strategy} must be one of {', '.join(short)}{nearest(strategy, names)}; use auto"


def checkpoint_bytes(cfg: DictConfig, parameters: int) -> int:
    """Size of one checkpoint: the weights, their averages and the optimizer's state, in float32."""
    return round(parameters * BYTES * (1 + averages(cfg) + optimizer_states(cfg)))


def averages(cfg: DictConfig) -> int:
    """Number of averages of the weights."""
    ema = cfg.callbacks.get("ema")
    if ema is None:
        return 0
    rule = _rule(cfg)
    return len(ema.get("decays", [])) if rule is None else len(rule.names)


def _rule(cfg: DictConfig) -> Any:
    """The rule of the averages; None for that of `decays`."""
    from diffusion_lab.cli.run_parts import part

    ema = cfg.callbacks.get("ema")
    return None if ema is None or ema.get("rule") is None else part(cfg, "averaging")


def snapshot_bytes(cfg: DictConfig, parameters: int) -> int:
    """Size of all snapshots of the averages, in float32."""
    rule = _rule(cfg)
    if rule is None or not rule.snapshot_every:
        return 0
    return parameters * BYTES * len(rule.names) * (int(cfg.max_steps) // rule.snapshot_every)


def optimizer_states(cfg: DictConfig) -> float:
    """Values that the optimizer stores per parameter, counted after one step: 2 for Adam.

    Of a hidden matrix and another, as nearly all weights are, the one that it stores more for.
    """
    import torch

    from diffusion_lab.cli.run_parts import part
    from diffusion_lab.optimizers import Weights

    # Without random numbers, which are the run's.
    other, hidden = (torch.nn.utils.skip_init(torch.nn.Linear, 64, 64, bias=False) for _ in range(2))
    weights = Weights(torch.nn.Sequential(other, torch.nn.ModuleList([hidden])))
    for weight in weights:
        torch.nn.init.zeros_(weight)
        weight.grad = torch.zeros_like(weight)
    optimizer = part(cfg, "optimizer")(weights)
    with _without_gpu():
        optimizer.step()
    kept = [
        sum(value.numel() for value in optimizer.state[weight].values() if torch.is_tensor(value) and value.ndim)
        for weight in weights
    ]
    return max(kept) / weights[0].numel()


@contextmanager
def _without_gpu() -> Iterator[None]:
    """Inside, PyTorch finds no GPU: an optimizer's step asks it whether its stream is being captured, and the jobs that
    a sweep forks from this process could then not use it."""
    import torch

    before = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = before


def checkpoints_kept(cfg: DictConfig) -> int:
    """Checkpoints on disk at the end of the run: the newest two and the numbered ones."""
    rolling = 2 if cfg.checkpoint_every else 1
    return rolling + (cfg.max_steps // cfg.keep_every if cfg.keep_every else 0)


def check_disk(cfg: DictConfig, parameters: int) -> list[ConfigError]:
    """Check that the run folder is writable and that its checkpoints fit, plus one that is being written."""
    folder, root = Path(cfg.paths.run_dir).absolute(), Path(cfg.paths.root).absolute()
    inside = folder.is_relative_to(root)  # not with hydra.run.dir or resume
    named = f"paths.root={cfg.paths.root}" if inside else f"hydra.run.dir={cfg.paths.run_dir}"
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        return [MissingHere(f"{named} must be a folder that can be written to; use another")]
    averaged = snapshot_bytes(cfg, parameters)
    need = checkpoint_bytes(cfg, parameters) * (checkpoints_kept(cfg) + 1) + averaged + MARGIN
    free = shutil.disk_usage(folder).free
    if free >= need:
        return []
    return [
        MissingHere(
            f"{named} must have {need / 1e9:.2f} GB free for {checkpoints_kept(cfg)} checkpoints"
            f"{f' and {averaged / 1e9:.2f} GB of snapshots of averages' if averaged else ''}, "
            f"and has {free / 1e9:.2f} GB; set another folder, or keep_every=0 to keep only the newest two"
        )
    ]


def check_folder(cfg: DictConfig) -> list[ConfigError]:
    """Check that the run folder is empty or has a run of this configuration."""
    folder = Path(cfg.paths.run_dir)
    try:
        check_run_folder("hydra.run.dir", folder)
    except ConfigError as error:
        return [error]
    try:
        saved = read_record(folder, "hydra.run.dir")
        if saved.get("config_hash") != config_hash(cfg):
            check_same_run(cfg, saved["config"], step=0, record=saved)
    except FileNotFoundError:
        return []
    except InvalidConfig as error:
        faults = [ConfigError(with_keys_to_type(cfg, text)) for text in _of_whole_parts(list(map(str, error.errors)))]
        return [ConfigError(f"{fault}, not {folder}") for fault in once(faults)]
    except ConfigError as error:
        return [ConfigError(f"hydra.run.dir={folder}: {error}")]
    except ValueError as error:
        return [ConfigError(str(error))]
    return []


def _of_whole_parts(texts: list[str]) -> list[str]:
    """Messages `key=value must ...` without those about arguments of a part whose class differs."""
    exchanged = tuple(text.partition("_target_=")[0] for text in texts if "._target_=" in text.partition(" ")[0])
    return [text for text in texts if not text.startswith(exchanged) or _own(text, exchanged)]


def _own(text: str, exchanged: tuple[str, ...]) -> bool:
    """Whether the message says that the class of a part differs, and no enclosing part has such a message."""
    part = text.partition("_target_=")[0]
    return part in exchanged and not any(part != around and part.startswith(around) for around in exchanged)
