"""Counts that need no run: FLOPs of the network, its calls outside the training steps, and peak memory of a process.

FLOPs and memory are those of tensors that have a shape and no memory. The peak is the sum of

    state     weights, gradients, optimizer's states, averages (DDP: its buckets, as large as the gradients); images
    beside    the maximum of: activations that a forward pass saves for its backward pass; a second copy of the weights
              and a call without gradients; on a CPU a checkpoint before it is written

Work space of kernels and gradients of activations are assumed to be a tenth of the saved activations: a backward pass
on such tensors counts 1 to 10 % over our networks, and 50 to 100 % with network.checkpointing=true, which recomputes
blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from diffusion_lab.callbacks.evaluation import measured as is_measured
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.processes import world_size
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.data import Conditions, ImageDataModule
from diffusion_lab.networks.kernels import as_on_gpu
from diffusion_lab.solvers import network_calls
from diffusion_lab.timesteps import TimestepSampler

HALF = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
# CUDA's autocast computes these in float32, the CPU's does not (PyTorch's "autocast op reference").
FLOAT32_ON_CUDA = (F.group_norm, F.layer_norm, torch.group_norm, torch.layer_norm, F.softmax, torch.softmax)
# Memory per image of a call without gradients over that of training: 0.08 to 0.16 in networks of more than ten million
# parameters, up to 0.25 in small ones.
WITHOUT_GRADIENTS = 0.15
WORK_SPACE = 0.1  # of the saved activations


class Beside(NamedTuple):
    """Work outside the training steps, over all processes."""

    calls: int  # network calls for one image, without gradients
    rows: int  # images of one such call on one process, at most
    checkpoints: int  # number of writes


def call_on_zeros(network: nn.Module, conditions: Conditions, rows: int, device: torch.device | str = "meta") -> Tensor:
    """The network's output for `rows` images of zeros with the conditions of the run."""
    x, cond = conditions.blank(rows, device)
    return network(x, torch.zeros(rows, dtype=torch.int64, device=device), **cond)


def flops(network: nn.Module, conditions: Conditions) -> tuple[int, int]:
    """FLOPs of one image: forward, and forward with backward. The network is on the meta device."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call_on_zeros(network, conditions, 1)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        call_on_zeros(network, conditions, 1).sum().backward()
    return forward, counter.get_total_flops()


def count_beside(cfg: DictConfig, data: ImageDataModule) -> Beside:
    """Calls for samples, metrics, validation and the timestep sampler (and the one inside it), and checkpoints."""
    calls, rows = _evaluations(cfg, data)
    validation, checkpoint = cfg.callbacks.get("validation"), cfg.callbacks.get("checkpoint")
    if validation is not None:
        images = _validation_images(data) * validation.get("repeats", 1)
        calls += max(1, len(_steps(cfg, validation))) * images  # always at the end
        rows = max(rows, min(validation.get("batch_size", 128), images))
    samplers = [one for one in part(cfg, "sampler").modules() if isinstance(one, TimestepSampler)]
    calls += sum(sampler.probe_rows(cfg.max_steps, cfg.batch_size) for sampler in samplers)
    return Beside(calls, rows, max(1, len(_steps(cfg, checkpoint))) if checkpoint is not None else 0)


def _steps(cfg: DictConfig, callback: DictConfig) -> list[int]:
    """The steps at which a callback acts: multiples of `every` and the end; none if it is 0."""
    every = callback.get("every", 0)
    return [*range(every, cfg.max_steps, every), cfg.max_steps] if every else []


def measured_steps(cfg: DictConfig) -> list[bool]:
    """For each time that a run with metrics generates, whether they are measured."""
    generation = cfg.callbacks.generation
    settings = (generation.every, generation.get("metrics_every", 0), cfg.max_steps)
    return [is_measured(step, *settings) for step in _steps(cfg, generation) or [cfg.max_steps]]  # always at the end


def _evaluations(cfg: DictConfig, data: ImageDataModule) -> tuple[int, int]:
    """Network calls of the whole run for metrics and for grids, and the batch size of one process."""
    generation, metrics = cfg.callbacks.get("generation"), part(with_metrics(cfg), "metrics")
    if generation is None:
        return 0, 0
    grid, measures = generation.get("grid", 64), bool(metrics.measured(data))
    at = measured_steps(cfg) if measures else [False] * len(_steps(cfg, generation))
    if not at:
        return 0, 0
    rows = min(metrics.batch_size, -(-metrics.num_samples // world_size(cfg)) if measures else grid)
    each, timesteps = solver_calls(cfg), part(cfg, "schedule").num_timesteps
    once = metrics.calls(data, each, timesteps, cfg.seed, grid) if measures else 0
    return sum(once if one else grid * each for one in at), rows


def _validation_images(data: ImageDataModule) -> int:
    """Images of one validation; if the files are not here, the number in the configuration, else 0."""
    try:
        return data.num_val_images
    except (FileNotFoundError, ValueError):
        return data.val_images or 0


def solver_calls(cfg: DictConfig) -> int:
    """Network calls of one row each that the solver makes for one sample."""
    parts = RunParts(cfg)
    return network_calls(parts["solver"], parts["model"].whole(nn.Identity(), parts))


def rows_per_pass(cfg: DictConfig) -> int:
    """Images of one microbatch on one process."""
    return cfg.batch_size // (world_size(cfg) * cfg.accumulate)


class Memory(NamedTuple):
    """Bytes of one process, without the libraries."""

    state: float  # from the first step to the last
    beside: float  # the maximum of the rest
    largest: str  # its source: activations, sampling or a checkpoint

    @property
    def peak(self) -> float:
        """The maximum over the run."""
        return self.state + self.beside


class _Float32AsOnCuda(TorchFunctionMode):
    """Normalisations and softmax in float32 under autocast."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in FLOAT32_ON_CUDA or not torch.is_autocast_enabled("cpu"):
            return func(*args, **(kwargs or {}))
        with torch.autocast("cpu", enabled=False):
            return func(*(a.float() if isinstance(a, Tensor) else a for a in args), **(kwargs or {}))


class _NoMemory(FakeTensorMode):
    """CPU tensors with shape and dtype but without memory.

    On a machine without CUDA, torch would register a fake CUDA device. The next backward pass then starts a thread for
    that device, and a process that is forked afterwards could not train.
    """

    @property
    def avoid_device_init(self) -> bool:
        return False


def activations(network: nn.Module, conditions: Conditions, rows: int, precision: str, cuda: bool) -> int:
    """Bytes that a forward pass of `rows` images saves for its backward pass, without the weights, plus work space.

    Args:
        network: on the meta device; it is not changed.
        conditions: the keywords of the network.
        rows: images of one microbatch on one process.
        precision: of the configuration.
        cuda: whether the run is on a GPU.
    """
    network, kept = copy.deepcopy(network), dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()  # once, however many views there are
        return tensor

    half = torch.autocast("cpu", HALF.get(precision, torch.bfloat16), enabled=precision in HALF)
    # CPU tensors, so that kernels are chosen as on a CPU and attention stays fused.
    with _NoMemory(allow_non_fake_inputs=True), torch.device("cpu"), ExitStack() as stack:
        for types_or_kernels in (_Float32AsOnCuda(), as_on_gpu()) if cuda else ():
            stack.enter_context(types_or_kernels)
        network.to_empty(device="cpu").train()
        with half, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = call_on_zeros(network, conditions, rows, "cpu").float().square().mean()
        for weight in network.parameters():
            kept.pop(weight.untyped_storage()._cdata, None)
    del loss  # its graph holds the saved tensors
    return round((1 + WORK_SPACE) * sum(kept.values()))
