"""What a run costs: counted on the meta device, and its time either tried here or taken from FLOPs.

    training     max_steps * seconds of a step
    evaluation   samples, their features, validation, the timestep sampler's looks, checkpoints and the start

Where the data and the devices are here and a step is short enough, both are measured with steps of the real loop.
Elsewhere seconds = FLOPs / (processes * FLOP/s), and `Cost.basis` says where the FLOP/s come from.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.build import build_network, part
from diffusion_lab.cli.checks.machine import (
    averages,
    checkpoint_bytes,
    checkpoints_kept,
    optimizer_states,
)
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.cost.counts import Looks, count_looks, example, flops, rows_per_pass
from diffusion_lab.cli.cost.devices import peak
from diffusion_lab.cli.cost.memory import Memory, forward_bytes, step_bytes
from diffusion_lab.cli.cost.trial import WARM_UP, convolution_rate, network_rate, take_steps, threads
from diffusion_lab.cli.processes import gpu_count, world_size
from diffusion_lab.cli.train import quiet_libraries
from diffusion_lab.data import Conditions, ImageDataModule

NETWORK_SHARE = 0.6  # assumed: of a convolution's FLOP/s, what a U-Net reaches
DISK_BYTES_PER_S = 2e8  # assumed: a checkpoint is serialised, hashed and flushed


@dataclass
class Cost:
    """What one run needs. Times in seconds, sizes in bytes, FLOPs per image (a multiplication and an addition are 2).

    Attributes:
        parameters: of the network.
        forward_flops: of one image without gradients.
        training_flops: of one image, forward and backward.
        memory: of one process.
        libraries: bytes that a process of this library has before its run begins; None on a GPU.
        images_per_second: of all processes together.
        training_seconds: all steps.
        evaluation_seconds: samples, features, validation, the timestep sampler's looks, checkpoints and the start.
        looks: how often and how much.
        measured: whether steps of the real loop were taken.
        basis: where the times come from, in words.
        gpus: that the run takes; 0 on a CPU.
        checkpoint: size of one.
        checkpoints: at the end.
        missing: what is not on this machine, a sentence each.
    """

    parameters: int
    forward_flops: int
    training_flops: int
    memory: Memory
    libraries: float | None
    images_per_second: float
    training_seconds: float
    evaluation_seconds: float
    looks: Looks
    measured: bool
    basis: str
    gpus: int
    checkpoint: int
    checkpoints: int
    missing: list[str]

    @property
    def seconds(self) -> float:
        """Training and evaluation."""
        return self.training_seconds + self.evaluation_seconds

    def flops_of(self, images: int) -> float:
        """FLOPs of a run that trains on so many images, evaluation included."""
        return images * self.training_flops + self.looks.network_calls * self.forward_flops

    @property
    def disk(self) -> int:
        """Bytes of all checkpoints at the end."""
        return self.checkpoint * self.checkpoints


def cost_of(cfg: DictConfig, budget_s: float, missing: list[str]) -> Cost:
    """Count everything, and try for about `budget_s` seconds what can be tried here."""
    quiet_libraries()
    data = part(cfg, "dataset")
    network = meta_network(cfg, data, part(cfg, "prediction"), part(cfg, "variance"))
    forward, both = flops(network, data.conditions)
    looks, parameters = count_looks(cfg, data), sum(p.numel() for p in network.parameters())
    memory = predict_memory(cfg, network, data, looks)
    libraries = None if on_gpu(cfg) else resident_bytes()
    counted = _Counted(cfg, forward, both, looks, memory, checkpoint_bytes(cfg, parameters), data.conditions)
    with threads(cfg):
        step, beside, measured, basis = _times(counted, budget_s, missing)
    return Cost(
        parameters=parameters,
        forward_flops=forward,
        training_flops=both,
        memory=memory,
        libraries=libraries,
        images_per_second=cfg.batch_size / step,
        training_seconds=cfg.max_steps * step,
        evaluation_seconds=beside,
        looks=looks,
        measured=measured,
        basis=basis,
        gpus=world_size(cfg) if on_gpu(cfg) else 0,
        checkpoint=counted.checkpoint,
        checkpoints=checkpoints_kept(cfg),
        missing=missing,
    )


def estimate_gpu_seconds(cfg: DictConfig) -> float:
    """Seconds that the run takes its GPUs, of the kind `cost.device`, times their number, from FLOPs alone: what
    `dry_run=true` says where no GPU is. Equal networks are counted once."""
    data = part(cfg, "dataset")
    heads = part(cfg, "prediction").heads, part(cfg, "variance").channels
    key = json.dumps([OmegaConf.to_container(cfg.network, resolve=True), data.shape, heads, cfg.task], default=str)
    if key not in _COUNTED:
        network = meta_network(cfg, data, part(cfg, "prediction"), part(cfg, "variance"))
        _COUNTED[key] = (*flops(network, data.conditions), sum(p.numel() for p in network.parameters()))
    forward, both, parameters = _COUNTED[key]
    saved = checkpoint_bytes(cfg, parameters)
    counted = _Counted(cfg, forward, both, count_looks(cfg, data), None, saved, data.conditions)
    step, beside = _from_flops(counted, cfg.cost.utilization * peak(cfg.cost.device, cfg.precision))
    return world_size(cfg) * (cfg.max_steps * step + beside)


_COUNTED: dict[str, tuple[int, int, int]] = {}


def on_gpu(cfg: DictConfig) -> bool:
    """Whether the run computes on GPUs, here or elsewhere."""
    accelerator = cfg.trainer.get("accelerator", "auto")
    return accelerator in ("gpu", "cuda") or (accelerator == "auto" and gpu_count() > 0)


def predict_memory(cfg: DictConfig, network: torch.nn.Module, data: ImageDataModule, looks: Looks) -> Memory:
    """Memory of one process of the run; `network` is on the meta device."""
    cuda, weights = on_gpu(cfg), 4.0 * sum(p.numel() for p in network.parameters())
    strategy = str(cfg.trainer.get("strategy", "auto"))
    shards = world_size(cfg) if "fsdp" in strategy.lower() or "sharded" in strategy.lower() else 1

    def rows(count: int):
        return lambda device: example(data.conditions, count, device)

    step = step_bytes(network, rows(rows_per_pass(cfg)), cfg.precision, cfg.accumulate, cuda)
    sizes = {looks.rows, looks.validation_rows} - {0}
    evaluation = [weights + forward_bytes(network, rows(size), cfg.precision, cuda) for size in sizes]
    return Memory(
        weights=weights / shards,
        gradients=weights / shards,
        optimizer=weights * optimizer_states(cfg) / shards,
        averages=weights * averages(cfg) / shards,
        buckets=weights if world_size(cfg) > 1 and shards == 1 else 0.0,
        activations=step - 2 * weights,
        evaluation=max(evaluation, default=0.0),
        saving=0.0 if cuda or not looks.checkpoints else weights * (1 + averages(cfg) + optimizer_states(cfg)),
        images=0.0 if cuda else _image_bytes(data),
    )


def _image_bytes(data: ImageDataModule) -> float:
    """The training images as bytes in memory, unless they are too many for that, or are not here to be counted."""
    try:
        size = float(data.source.train_size() * math.prod(data.shape))
    except (FileNotFoundError, ValueError):
        return 0.0
    return size if size < 2**20 * getattr(data.source, "memory_mb", 4096) else 0.0


@dataclass(frozen=True)
class _Counted:
    """What is known before anything is tried."""

    cfg: DictConfig
    forward: int
    both: int
    looks: Looks
    memory: Memory | None  # None: nothing is going to be tried
    checkpoint: int
    conditions: Conditions

    @property
    def saving_seconds(self) -> float:
        return self.looks.checkpoints * self.checkpoint / DISK_BYTES_PER_S


def _times(counted: _Counted, budget_s: float, missing: list[str]) -> tuple[float, float, bool, str]:
    """Seconds of one step, seconds beside the steps, whether they are measured, and where they come from."""
    cfg, processes = counted.cfg, world_size(counted.cfg)
    assert counted.memory is not None
    if on_gpu(cfg) and gpu_count() == 0:
        device, share = cfg.cost.device, cfg.cost.utilization
        reach = peak(device, cfg.precision)
        basis = f"{processes} x {device} at {share * reach / 1e12:.4g} TFLOP/s (assumed {share:.0%} of its peak)"
        return *_from_flops(counted, share * reach), False, f"estimated: time on {basis}"
    device = torch.device("cuda" if on_gpu(cfg) else "cpu")
    rate = NETWORK_SHARE * convolution_rate(device, cfg.precision)
    expected = counted.both * cfg.batch_size / processes / rate * (WARM_UP + 2)
    free = free_bytes(device)
    if not missing and expected < 3 * budget_s and counted.memory.peak < 0.9 * free:
        trial, looks = take_steps(cfg, budget_s, counted.looks), counted.looks
        row = trial.step * counted.forward / (counted.both * cfg.batch_size)  # of a pass without gradients
        images = looks.generations * looks.samples + (_reference_images(cfg) if looks.measured else 0)
        beside = (
            looks.all_samples * trial.sample + looks.validations * looks.images * trial.validation
        ) / processes + images * trial.feature / processes
        beside += looks.sampler_rows * row + trial.start + counted.saving_seconds
        return trial.step, beside, True, f"measured over {trial.steps} steps"
    rows = _rows_to_try(counted, rate, budget_s, free)
    if rows:
        given = example(counted.conditions, rows, device)
        rate = network_rate(lambda: _network(cfg), given, counted.both * rows, device, cfg.precision)
        basis = f"estimated: {rate / 1e9:.4g} GFLOP/s, measured here with {rows} random images"
    else:
        basis = f"estimated: {rate / 1e9:.4g} GFLOP/s, {NETWORK_SHARE:.0%} of a convolution's, measured here"
    return *_from_flops(counted, rate), False, basis


def _from_flops(counted: _Counted, rate: float) -> tuple[float, float]:
    """Seconds of one step, and beside the steps, at `rate` FLOP/s on each process."""
    cfg, each = counted.cfg, rate * world_size(counted.cfg)
    beside = counted.looks.network_calls * counted.forward / each + counted.saving_seconds
    return counted.both * cfg.batch_size / each, beside


def _rows_to_try(counted: _Counted, rate: float, budget_s: float, free: float) -> int:
    """Random images for which network, gradients and two passes fit into memory and budget; 0: not even one."""
    assert counted.memory is not None
    most = rows_per_pass(counted.cfg)
    per_row = counted.memory.activations / most
    by_memory = (0.5 * free - 2 * counted.memory.weights) / max(per_row, 1.0)
    by_time = budget_s / (2 * counted.both / rate)
    return max(0, int(min(most, by_memory, by_time, 64)))


def _network(cfg: DictConfig) -> torch.nn.Module:
    return build_network(cfg, part(cfg, "dataset"), part(cfg, "prediction"), part(cfg, "variance"))


def _reference_images(cfg: DictConfig) -> int:
    """Images whose features are extracted once, at the first evaluation on this machine."""
    try:
        return part(cfg, "dataset").source.train_size()
    except (FileNotFoundError, ValueError):
        return 0


def free_bytes(device: torch.device) -> float:
    """Memory that a run could still take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[0]
    table = Path("/proc/meminfo")
    if table.is_file():
        available = next((line for line in table.read_text().splitlines() if line.startswith("MemAvailable")), None)
        if available is not None:
            return 1024.0 * int(available.split()[1])
    return 0.5 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def resident_bytes() -> float:
    """Memory that this process holds, with the libraries that a run needs."""
    table = Path("/proc/self/statm")
    if table.is_file():
        return float(table.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(held) if sys.platform == "darwin" else 1024.0 * held
