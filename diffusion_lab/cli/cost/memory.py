"""Peak memory of one process, from one training step on tensors without memory.

    kept        weights + optimizer's states + averages (+ DDP's buckets, as large as the gradients)
    step        the most that is alive at any moment of forward and backward: gradients, activations, temporaries
    evaluation  the weights again, because averages take their place, and a forward pass without gradients
    saving      a checkpoint is put together in the host's memory before it is written

    peak = kept + the largest of step, gradients + evaluation, gradients + saving

Gradients of the step before live until the forward pass has ended. Of kernels' work space the copies of convolutions
on CPUs are counted, no other.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from diffusion_lab.cli.cost.counts import Example

HALF = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
# CUDA's autocast computes these in float32, the CPU's does not (PyTorch's "autocast op reference").
FLOAT32_ON_CUDA = (F.group_norm, F.layer_norm, torch.group_norm, torch.layer_norm, F.softmax, torch.softmax)
CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


@dataclass(frozen=True)
class Memory:
    """Bytes of one process.

    Attributes:
        weights: of the network.
        gradients: one per weight.
        optimizer: its states.
        averages: of the weights.
        buckets: copies of the gradients that processes exchange.
        activations: what forward and backward need at their peak beside weights and gradients.
        evaluation: what samples and validation need beside weights and gradients.
        saving: the host's copy of a checkpoint.
        images: the data set, where it lies in the same memory.
    """

    weights: float
    gradients: float
    optimizer: float
    averages: float
    buckets: float
    activations: float
    evaluation: float
    saving: float
    images: float

    @property
    def state(self) -> float:
        """What is there from the first step to the last."""
        return self.weights + self.gradients + self.optimizer + self.averages + self.buckets + self.images

    @property
    def peak(self) -> float:
        """The most at any moment."""
        return self.state + max(self.activations, self.evaluation, self.saving)

    @property
    def largest(self) -> str:
        """What needs the most beside the state."""
        parts = {"activations": self.activations, "sampling": self.evaluation, "a checkpoint": self.saving}
        return max(parts, key=lambda name: parts[name])


class Live(TorchDispatchMode):
    """Counts the bytes of the storages that are alive, each once, however many views there are.

    Args:
        copies: whether a convolution copies its operands and results into a layout of its own while it runs, as
            oneDNN does on CPUs. The work space of CUDA's kernels is not known here.

    Attributes:
        now: bytes alive.
        peak: the most so far.
    """

    def __init__(self, copies: bool = False) -> None:
        super().__init__()
        self.copies = copies
        self.now, self.peak = 0, 0
        self._known: set[int] = set()

    def add(self, tensor: Tensor) -> None:
        """Count the tensor's storage from now until it dies."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size).atexit = False

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        for leaf in results:
            self.add(leaf)
        if self.copies and func in CONVOLUTIONS:
            copied = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)] + results
            self.peak = max(self.peak, self.now + sum(leaf.numel() * leaf.element_size() for leaf in copied))
        return out


class AsOnCuda(TorchFunctionMode):
    """What CUDA keeps for backward where the CPU keeps something else.

    Normalisations and softmax take float32 under autocast, and dropout keeps a mask of bytes.
    """

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FLOAT32_ON_CUDA and torch.is_autocast_enabled("cpu"):
            with torch.autocast("cpu", enabled=False):
                return func(*(a.float() if isinstance(a, Tensor) else a for a in args), **kwargs)
        if func is F.dropout:
            return _dropout(*args, **kwargs)
        return func(*args, **kwargs)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


class _NoMemory(FakeTensorMode):
    """Tensors of the CPU that have a shape and a type and no memory.

    torch would put a stand-in for a CUDA device in its place on a machine without one. The first backward pass then
    starts a thread for that device, and no process that is forked afterwards could train.
    """

    @property
    def avoid_device_init(self) -> bool:
        return False


@contextmanager
def _device(cuda: bool) -> Iterator[None]:
    """Tensors on the CPU that have no memory; kernels are chosen as there, so attention stays fused."""
    with _NoMemory(allow_non_fake_inputs=True), torch.device("cpu"):
        if cuda:
            with AsOnCuda():
                yield
        else:
            yield


def _autocast(precision: str) -> torch.autocast:
    return torch.autocast("cpu", HALF.get(precision, torch.bfloat16), enabled=precision in HALF)


def step_bytes(
    network: nn.Module, inputs: Callable[[str], Example], precision: str, accumulate: int, cuda: bool
) -> int:
    """Most bytes alive during forward and backward of one microbatch: weights, gradients, activations, temporaries.

    Args:
        network: on the meta device; it is not changed.
        inputs: gives the arguments of the network on a device, for all rows of the microbatch.
        precision: of the configuration.
        accumulate: microbatches of one step; if more than one, gradients live through the backward pass as well.
        cuda: whether a GPU keeps it.
    """
    network = copy.deepcopy(network)
    with _device(cuda):
        network.to_empty(device="cpu").train()
        live, parameters = Live(copies=not cuda), list(network.parameters())
        for parameter in parameters:
            parameter.grad = torch.empty_like(parameter)
            live.add(parameter)
            live.add(parameter.grad)
        with live:
            given = inputs("cpu")
            beside = [torch.empty_like(given.x) for _ in range(2)]  # x0 and eps
            with _autocast(precision):
                answer = given.ask(network).float()
                loss = (answer - torch.empty_like(answer)).square().mean()
            if accumulate == 1:
                for parameter in parameters:
                    parameter.grad = None
            loss.backward()
            del beside
        return live.peak


def forward_bytes(network: nn.Module, inputs: Callable[[str], Example], precision: str, cuda: bool) -> int:
    """Most bytes alive during a forward pass without gradients, beside the weights."""
    network = copy.deepcopy(network)
    with _device(cuda):
        network.to_empty(device="cpu").eval()
        live = Live(copies=not cuda)
        for parameter in network.parameters():
            live.add(parameter)
        before = live.now
        with live, torch.no_grad(), _autocast(precision):
            inputs("cpu").ask(network)
        return live.peak - before
