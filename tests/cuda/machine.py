"""A machine with one GPU on paper: what PyTorch and Lightning ask of a driver, answered without one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._pytree import tree_map

from tests.cuda.paper import CPU, CUDA, PaperGPU

_to, _save, _load = Tensor.to, torch.save, torch.load


class PaperGenerator(torch.Generator):
    """Its numbers are the host's; which they are makes no difference here."""

    def __new__(cls, device: torch.device | str = "cpu") -> PaperGenerator:
        return super().__new__(cls, CPU)


class PaperAccelerator(CUDAAccelerator):
    """Lightning's for CUDA, which finds its GPU."""

    def setup_device(self, device: torch.device) -> None:
        assert device.type == "cuda"

    def teardown(self) -> None:
        """There is no memory to give back."""

    @staticmethod
    def auto_device_count() -> int:
        return 1

    @staticmethod
    def is_available() -> bool:
        return True


class PaperStrategy(SingleDeviceStrategy):
    """Lightning's for one device; it leaves the weights there at the end."""

    def __init__(self) -> None:
        super().__init__(device=CUDA, accelerator=PaperAccelerator())

    def teardown(self) -> None:
        self.precision_plugin.teardown()


def _stays(old: Tensor, new: Tensor) -> None:
    """`Module.to` where a weight is there already: PyTorch would put the new tensor in place of the old one."""
    assert old.device == new.device and old.dtype == new.dtype


def _moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor.to`, which gives the tensor itself where nothing is to be done. C++ has another name for the device."""
    first = ("dtype",) if args and isinstance(args[0], torch.dtype) else ("device", "dtype")
    words = dict(zip((*first, "non_blocking", "copy"), args, strict=False)) | kwargs
    like = words.pop("other", None) or words.get("device")
    if isinstance(like, Tensor):
        words |= {"device": like.device, "dtype": like.dtype}
    words = {key: value for key, value in words.items() if value is not None}
    if torch.device(words.get("device", tensor.device)).type == tensor.device.type:
        words.pop("device", None)
        if not words.get("copy") and words.get("dtype", tensor.dtype) == tensor.dtype and "memory_format" not in words:
            return tensor
    return _to(tensor, **words)


def _saved(content: Any, file: Any) -> None:
    """`torch.save`, which copies tensors of a device to the host."""
    _save(tree_map(lambda value: value.cpu() if isinstance(value, FakeTensor) else value, content), file)


def _loaded(*args: Any, **kwargs: Any) -> Any:
    """`torch.load`, which gives tensors without numbers while a fake mode is on."""
    with unset_fake_temporarily():
        return _load(*args, **kwargs)


def _copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy` of a tensor of the device, for which PyTorch asks where its numbers lie."""
    if id(tensor) not in memo:
        copied = tensor.detach().clone()
        memo[id(tensor)] = nn.Parameter(copied, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copied
    return memo[id(tensor)]


def _zero_gradients(
    roots: Any, *args: Any, inputs: tuple[Any, ...] = (), accumulate_grad: bool = False, **_: Any
) -> Any:
    """In place of the autograd engine: zeros, of each weight or input that the roots depend on."""
    if not accumulate_grad:
        return tuple(torch.zeros_like(value) for value in inputs or args[3])
    nodes, seen = [root.grad_fn for root in roots], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        if hasattr(node, "variable"):
            leaf = node.variable
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return ()


@contextlib.contextmanager
def paper_machine(values: bool = True, mixed: bool = False) -> Iterator[PaperGPU]:
    """Inside, "cuda" is a device of which nothing but names, shapes and host-computed numbers exists.

    Args:
        values: whether there are numbers.
        mixed: whether autocast works, at the cost of gradients, which are then zeros.
    """
    gpu = PaperGPU(values, mixed)

    class Event:
        """Of a stream; to wait for one is to wait for the device, which `_Arriving` does a step later."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def record(self, *_: Any) -> None: ...

        def synchronize(self) -> None: ...

    answers = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "is_current_stream_capturing": lambda: False,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_name": lambda *_: "a GPU on paper",
        "max_memory_allocated": lambda *_: 0,
        "mem_get_info": lambda *_: (80 << 30, 80 << 30),
        "synchronize": lambda *_: gpu.note("torch.cuda.synchronize"),
        "empty_cache": lambda: None,
        "is_bf16_supported": lambda *_, **__: True,
        "Event": Event,
        "default_generators": (torch.Generator(),),
    }
    with contextlib.ExitStack() as inside:
        for name, answer in answers.items():
            inside.enter_context(patch.object(torch.cuda, name, answer))
        inside.enter_context(patch.object(torch, "Generator", PaperGenerator))
        inside.enter_context(patch.object(torch, "save", _saved))
        inside.enter_context(patch.object(torch, "load", _loaded))
        inside.enter_context(patch.object(torch.utils, "swap_tensors", _stays))
        for name, value in {
            "to": _moved,
            "cpu": lambda tensor, *_: tensor.to(CPU),
            "cuda": lambda tensor, *_, **__: tensor.to(CUDA),
            "__deepcopy__": _copied,
            "is_cuda": property(lambda tensor: tensor.device.type == "cuda"),
            "tolist": lambda tensor: tensor.cpu().tolist(),
            "numpy": lambda tensor, *_, **__: Tensor.numpy(tensor.cpu()),
        }.items():
            inside.enter_context(patch.object(FakeTensor, name, value, create=True))
        if mixed:
            inside.enter_context(patch.object(torch.autograd, "_engine_run_backward", _zero_gradients))
        inside.enter_context(gpu)
        yield gpu
