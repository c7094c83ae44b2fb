"""The cost of a run: FLOPs counted on the meta device, and time measured here or estimated from FLOPs.

    training     max_steps * seconds of a step
    evaluation   network calls outside the steps (samples, metrics, validation, the timestep sampler), and checkpoints

FLOPs are those of the run's network; other ones, such as an encoder of an auxiliary loss, are in measured times alone.

A step and a call are measured if the data and the devices are here and a step is short enough. Otherwise
seconds = FLOPs / (processes * FLOP/s), and `Cost.basis` describes the source of the FLOP/s.
"""

from __future__ import annotations

import json
import math
import os
from typing import NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.checks.machine import (
    averages,
    checkpoint_bytes,
    checkpoints_kept,
    optimizer_states,
    snapshot_bytes,
)
from diffusion_lab.cli.checks.parts import meta_network
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.cli.compute import torch_threads
from diffusion_lab.cli.cost.counts import (
    WITHOUT_GRADIENTS,
    Beside,
    Memory,
    activations,
    count_beside,
    flops,
    rows_per_pass,
)
from diffusion_lab.cli.cost.devices import peak
from diffusion_lab.cli.cost.trial import WARM_UP, convolution_rate, take_steps, threads
from diffusion_lab.cli.processes import gpu_count, world_size
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.data import ImageDataModule

NETWORK_SHARE = 0.75  # assumed: FLOP/s of a U-Net over those of a convolution
DISK_BYTES_PER_S = 2e8  # assumed: a checkpoint is serialised, hashed and flushed


class Counts(NamedTuple):
    """Counts that need no measurement. FLOPs are of one image; a multiplication and an addition are 2."""

    parameters: int  # of the network
    forward: int  # FLOPs without gradients
    training: int  # FLOPs, forward and backward, with the step's calls without gradients
    beside: Beside
    checkpoint: int  # bytes

    def flops_of(self, images: int) -> float:
        """FLOPs of a run that trains on so many images, evaluation included."""
        return images * self.training + self.beside.calls * self.forward


class Cost(NamedTuple):
    """The cost of one run. Times in seconds, sizes in bytes."""

    counts: Counts
    memory: Memory  # of one process
    step: float  # of all processes together
    steps: int
    evaluation_seconds: float
    basis: str  # source of the times, in words
    gpus: int  # GPUs of the run; 0 on a CPU
    disk: int  # all checkpoints, and snapshots of averages, at the end

    @property
    def training_seconds(self) -> float:
        """All steps."""
        return self.steps * self.step

    @property
    def seconds(self) -> float:
        """Training and evaluation."""
        return self.training_seconds + self.evaluation_seconds


def cost_of(cfg: DictConfig, budget_s: float, missing: bool) -> Cost:
    """Count everything, and unless something is `missing` here, measure steps for about `budget_s` seconds."""
    quiet_libraries()
    data = part(cfg, "dataset")
    counts, network = _count(cfg, data)
    memory = predict_memory(cfg, network, data, counts)
    step, beside, basis = _times(cfg, counts, math.inf if missing else memory.peak, budget_s)
    gpus = world_size(cfg) if on_gpu(cfg) else 0
    disk = counts.checkpoint * checkpoints_kept(cfg) + snapshot_bytes(cfg, counts.parameters)
    return Cost(counts, memory, step, cfg.max_steps, beside, basis, gpus, disk)


def counted_flops(cfg: DictConfig) -> float:
    """FLOPs of a run, evaluation included; without a measurement."""
    counts, _ = _count(cfg, part(cfg, "dataset"))
    return counts.flops_of(cfg.max_steps * cfg.batch_size)


def estimate_gpu_seconds(cfg: DictConfig) -> float:
    """GPU seconds of the run on GPUs of the kind `cost.device`, estimated from FLOPs as `dry_run=true` does without a
    GPU."""
    counts, _ = _count(cfg, part(cfg, "dataset"))
    step, beside = _from_flops(cfg, counts, cfg.cost.utilization * peak(cfg.cost.device, cfg.precision))
    return world_size(cfg) * (cfg.max_steps * step + beside)


def on_gpu(cfg: DictConfig) -> bool:
    """Whether the run computes on GPUs, here or elsewhere."""
    accelerator = cfg.trainer.get("accelerator", "auto")
    return accelerator in ("gpu", "cuda") or (accelerator == "auto" and gpu_count() > 0)


def predict_memory(cfg: DictConfig, network: torch.nn.Module, data: ImageDataModule, counts: Counts) -> Memory:
    """Memory of one process of the run; `network` is on the meta device."""
    cuda, weights, processes = on_gpu(cfg), 4.0 * counts.parameters, world_size(cfg)
    sharded = any(word in str(cfg.trainer.get("strategy", "auto")).lower() for word in ("fsdp", "sharded"))
    copies = 2 + optimizer_states(cfg) + averages(cfg)  # with the gradients
    state = weights * (copies / processes if sharded else copies + (processes > 1))
    rows = rows_per_pass(cfg)
    parts = {"activations": float(activations(network, data.conditions, rows, cfg.precision, cuda))}
    image = WITHOUT_GRADIENTS * parts["activations"] / rows
    parts["sampling"] = weights + counts.beside.rows * image if counts.beside.rows else 0.0
    parts["a checkpoint"] = 0.0 if cuda or not counts.beside.checkpoints else float(counts.checkpoint)
    largest = max(parts, key=lambda name: parts[name])
    return Memory(state + (0 if cuda else _image_bytes(data)), parts[largest], largest)


def _count(cfg: DictConfig, data: ImageDataModule) -> tuple[Counts, torch.nn.Module]:
    """Counts, and the network on the meta device. Equal networks are counted once."""
    prediction, variance = part(cfg, "prediction"), part(cfg, "variance")
    heads = prediction.heads, variance.channels
    labels = data.conditions.num_labels
    key = json.dumps(
        [OmegaConf.to_container(cfg.network, resolve=True), cfg.model, data.shape, heads, cfg.task, labels], default=str
    )
    if key not in _NETWORKS:
        network = meta_network(RunParts(cfg))
        forward, training = flops(network, data.conditions)
        training += part(cfg, "model").trains.calls_beside * forward
        _NETWORKS[key] = network, sum(p.numel() for p in network.parameters()), forward, training
    network, parameters, forward, training = _NETWORKS[key]
    saved = checkpoint_bytes(cfg, parameters)
    return Counts(parameters, forward, training, count_beside(cfg, data), saved), network


_NETWORKS: dict[str, tuple[torch.nn.Module, int, int, int]] = {}


def _image_bytes(data: ImageDataModule) -> float:
    """Bytes of the training images in memory; 0 if they are not kept there or are not on this machine."""
    try:
        size = float(data.source.train_size() * math.prod(data.shape))
    except (FileNotFoundError, ValueError):
        return 0.0
    return size if size < 2**20 * getattr(data.source, "memory_mb", 4096) else 0.0


def _times(cfg: DictConfig, counts: Counts, bytes_: float, budget_s: float) -> tuple[float, float, str]:
    """Seconds of one step, seconds outside the steps, and their source. They are measured if the run's `bytes_` fit
    into half of the memory."""
    processes = world_size(cfg)
    if on_gpu(cfg) and gpu_count() == 0:
        device, share = cfg.cost.device, cfg.cost.utilization
        rate = share * peak(device, cfg.precision)
        basis = f"{processes} x {device} at {rate / 1e12:.4g} TFLOP/s (assumed {share:.0%} of its peak)"
        return *_from_flops(cfg, counts, rate), f"estimated: time on {basis}"
    device = torch.device("cuda" if on_gpu(cfg) else "cpu")
    with torch_threads(threads(cfg)):
        rate = NETWORK_SHARE * convolution_rate(device, cfg.precision)
        step, beside = _from_flops(cfg, counts, rate)
        if step * (WARM_UP + 2) > 3 * budget_s or bytes_ > _memory_bytes(device) / 2:
            basis = f"{rate / 1e9:.4g} GFLOP/s, {NETWORK_SHARE:.0%} of a convolution's, measured here"
            return step, beside, f"estimated: {basis}"
        trial = take_steps(cfg, budget_s / 2, counts.beside.rows)
    calls = counts.beside.calls * trial.call / processes
    return trial.step, calls + saving_seconds(counts), f"measured over {trial.steps} steps"


def _from_flops(cfg: DictConfig, counts: Counts, rate: float) -> tuple[float, float]:
    """Seconds of one step, and outside the steps, at `rate` FLOP/s on each process."""
    each = rate * world_size(cfg)
    beside = counts.beside.calls * counts.forward / each + saving_seconds(counts)
    return counts.training * cfg.batch_size / each, beside


def saving_seconds(counts: Counts) -> float:
    """Of all checkpoints."""
    return counts.beside.checkpoints * counts.checkpoint / DISK_BYTES_PER_S


def _memory_bytes(device: torch.device) -> float:
    """Memory of the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[1]
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
