"""Peak memory of one process, from a forward pass on tensors that have a shape and no memory.

    state     weights, gradients, optimizer's states, averages (DDP: its buckets, as large as the gradients); images
    beside    the maximum of: activations that a forward pass saves for its backward pass; a second copy of the weights
              and a call without gradients; on a CPU a checkpoint before it is written

Work space of kernels and gradients of activations are assumed to be a tenth of the saved activations: a backward pass
on such tensors counts 1 to 10 % over our networks, and 50 to 100 % with network.checkpointing=true, which recomputes
blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode

from diffusion_lab.cli.cost.counts import call_on_zeros
from diffusion_lab.data import Conditions
from diffusion_lab.networks.kernels import as_on_gpu

HALF = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
# CUDA's autocast computes these in float32, the CPU's does not (PyTorch's "autocast op reference").
FLOAT32_ON_CUDA = (F.group_norm, F.layer_norm, torch.group_norm, torch.layer_norm, F.softmax, torch.softmax)
# Memory per image of a call without gradients over that of training: 0.08 to 0.16 in networks of more than ten million
# parameters, up to 0.25 in small ones.
WITHOUT_GRADIENTS = 0.15
WORK_SPACE = 0.1  # of the saved activations


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


@contextmanager
def _as_on_cuda() -> Iterator[None]:
    """Types and kernels of a GPU for tensors of the CPU."""
    with _Float32AsOnCuda(), as_on_gpu():
        yield


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
    with _NoMemory(allow_non_fake_inputs=True), torch.device("cpu"), _as_on_cuda() if cuda else nullcontext():
        network.to_empty(device="cpu").train()
        with half, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = call_on_zeros(network, conditions, rows, "cpu").float().square().mean()
        for weight in network.parameters():
            kept.pop(weight.untyped_storage()._cdata, None)
    del loss  # its graph holds the saved tensors
    return round((1 + WORK_SPACE) * sum(kept.values()))
