"""Twelve trainings of at most 40 steps, and what is stored of each.

Of each part of a run's last checkpoint two things are stored: a checksum of its bits, and three numbers that hardly
depend on rounding. How the two are used is said in `compare`.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from diffusion_lab.cli.config import compose_train, config_hash, group_hash, run_name
from tests.harness import TINY, configuration, final_state, train_child

LIBRARIES = ("torch", "lightning", "numpy", "scikit-learn")  # scikit-learn brings the images
# Short averages: those of TINY would all stand at the warm-up's (1+n)/(10+n) and be equal.
COMMON = ["max_steps=24", "log_every=4", "snapshot_every=12", "checkpoint_every=12", "callbacks.ema.decays=[0.3,0.6]"]
RUNS: dict[str, list[str]] = {
    "logit_normal": ["sampler=logit_normal"],
    "clts": ["method=clts"],
    "stratified": [
        "sampler=stratified",
        "sampler@sampler.base=loss_second_moment",
        "sampler.base.history_per_timestep=1",
        "batch_size=32",
        "max_steps=40",
    ],
    "equal_loss_slots": ["sampler=equal_loss_slots", "sampler.num_slots=4", "sampler.update_every=4"],
    "learned_beta": [
        "sampler=learned_beta",
        "sampler.every=4",
        "sampler.queue=3",
        "sampler.select_from=2",
        "sampler.hidden=16",
    ],
    "min_snr": ["weighting=min_snr", "network.dropout=0.1"],
    "x0": ["prediction=x0", "schedule=cosine", "schedule.num_timesteps=40"],
    "mixed": ["prediction=mixed"],
    "iddpm": ["method=iddpm", "schedule.num_timesteps=40", "dataset.conditional=true"],
    "mdlrc": ["method=mdlrc"],
    "uvit": ["network=uvit_tiny", "network.dim=32"],
    "two_processes": ["trainer.devices=2", "trainer.strategy=ddp_fork", "accumulate=2"],
}


def machine() -> dict[str, str]:
    """What decides the last bits of a sum: libraries, the instructions of the processor, threads."""
    return {name: metadata.version(name) for name in LIBRARIES} | {
        "system": f"{platform.system()} {platform.machine()}",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": _processor(),
        "threads": "1",  # harness.Child sets it
    }


def _processor() -> str:
    """The model's name as Linux says it; elsewhere what Python knows."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "") or (
        platform.processor() or "unknown"
    )


def run_configuration(name: str, folder: Path, *more: str) -> Any:
    """The composed configuration of one of RUNS in `folder`."""
    overrides = [*COMMON, *RUNS[name], *more]
    if not any(word.startswith("network=") for word in overrides):
        return configuration(folder, *overrides)
    return compose_train([word for word in TINY if not word.startswith("network")] + overrides, folder)


def identity(cfg: Any) -> dict[str, str]:
    """What a run is called and the two hashes, which do not depend on the machine."""
    return {"name": run_name(cfg), "config_hash": config_hash(cfg), "group_hash": group_hash(cfg)}


def measure(name: str, folder: Path, *more: str) -> dict[str, Any]:
    """Train one of RUNS in `folder`: its identity, its parts and the lines of its metrics.jsonl."""
    cfg = run_configuration(name, folder, *more)
    train_child(cfg).succeed()
    state: dict[str, Any] = final_state(folder)
    callbacks = state["callbacks"]
    parts = {"weights": state["weights"], "optimizer": state["optimizer"]}
    parts |= {f"average {decay}": average for decay, average in callbacks["EMA"].items()}
    sampler = [value for key, value in callbacks.items() if key.startswith("TimestepSampling/")]
    if sampler:
        parts["sampler"] = sampler[0]
    return identity(cfg) | {
        "step": state["step"],
        "parts": {key: {"sha256": checksum(part), "numbers": numbers(part)} for key, part in parts.items()},
        "metrics": [json.loads(line) for line in state["metrics"].decode().splitlines()],
    }


def checksum(part: Any) -> str:
    """SHA-256 of every key, type, shape and bit below a node of dicts, lists, tensors and plain values."""
    digest = hashlib.sha256()
    for path, leaf in _leaves(part):
        digest.update(f"{path}|".encode())
        if isinstance(leaf, torch.Tensor):
            digest.update(f"{leaf.dtype}|{tuple(leaf.shape)}|".encode())
            digest.update(leaf.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{type(leaf).__name__}|{leaf!r}|".encode())
    return digest.hexdigest()


def numbers(part: Any) -> list[float]:
    """How many values the tensors hold, their 2-norm |v|, and sum_i v_i cos(i) / sqrt(n).

    Scalars are left out: an optimizer's counts of steps would hide everything else in the norm.
    """
    tensors = [leaf for _, leaf in _leaves(part) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    values = [leaf.detach().double().flatten() for leaf in tensors]
    v = torch.cat([x.nan_to_num() for x in values]) if values else torch.zeros(0, dtype=torch.float64)
    wave = torch.arange(len(v), dtype=torch.float64).cos()
    return [len(v), float(v.norm()), float(v @ wave) / math.sqrt(max(1, len(v)))]


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, dicts in the order of their keys' text."""
    if isinstance(node, dict):
        for key in sorted(node, key=str):
            yield from _leaves(node[key], f"{path}.{key}")
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from _leaves(value, f"{path}[{i}]")
    else:
        yield path, node
