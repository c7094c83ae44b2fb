"""A GPU on paper: tensors of "cuda" on a machine that has none.

PyTorch's `FakeTensorMode` answers every operator with the shape, the type and the device that CUDA would give, and
refuses tensors of two devices. `PaperGPU` adds what a run needs beyond that:

- tensors of the host stay what they are, and are computed;
- a tensor of the device carries the numbers that it would hold, computed on the host, so that a read goes on with the
  right number, whole trainings can take place, and their results can be compared with the CPU's;
- every operator for which the host waits for the device is noted, with the function of ours that asked for it.

PyTorch's autograd engine asks the driver for the stream of a CUDA tensor. C++ is therefore given another name of the
device, "lazy", whose nodes the engine runs on the calling thread; Python is never given that name. Autocast, however,
casts only what C++ knows as CUDA: `mixed=True` gives the true name, and then nothing can be run backward.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

import diffusion_lab

aten = torch.ops.aten
CPU, CUDA, NICKNAME = torch.device("cpu"), torch.device("cuda:0"), torch.device("lazy:0")
PACKAGE = str(Path(diffusion_lab.__file__).parent) + "/"
READ, TO_HOST, TO_DEVICE = "reads a number", "copies to the host", "copies to the device"
MASK, HOST_INDEX, SIZE = "selects by a mask", "indexes with numbers of the host", "asks for a size that numbers decide"
STATUS = "asks whether an operator succeeded"
LIBRARIES = ("/lightning/", "/torch/amp/", "/torch/optim/")
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Their results have a known size, but CUDA's kernels report success in a number that the host reads.
WITH_STATUS = {"_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_lstsq"}


class Wait(NamedTuple):
    """The host waits for the device."""

    where: str  # the innermost function of ours, "callbacks/guard.py:check"
    why: str  # one of the words above


class PaperGPU(FakeTensorMode):
    """See the module.

    Args:
        values: whether the numbers are computed. Without, networks of any size need no memory, and a read is an error.
        mixed: whether autocast works, in place of the autograd engine.
    """

    def __init__(self, values: bool = True, mixed: bool = False) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.values, self.name = values, CUDA if mixed else NICKNAME
        self.waits: Counter[Wait] = Counter()
        self._inside = False  # a fake operator is made of others, which are none of ours

    @property
    def avoid_device_init(self) -> bool:
        """No tensor is ever made on the device, whatever `torch.cuda.is_available` says."""
        return True

    def note(self, why: str) -> None:
        """The host waits here."""
        self.waits[Wait(asked_by(), why)] += 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside:
            return super().__torch_dispatch__(func, types, args, kwargs or {})
        if func is torch.ops.prim.device.default:
            return self.name
        args, kwargs = _each(_called_cuda, args), _each(_called_cuda, kwargs or {})
        if not (_any_on_device(args) or _any_on_device(tuple(kwargs.values()))):
            return on_host(func, args, kwargs)
        if is_composite(func):  # under inference_mode
            with self:
                return func.decompose(*args, **kwargs)
        if why := waits_for(func, args, kwargs):
            self.note(why)
        if not self.values:
            return self._fake(func, types, args, kwargs)
        real = func(*_each(_numbers, args), **_each(_numbers, kwargs))
        if func is aten._local_scalar_dense.default or why == TO_HOST or _to_host(func, args, kwargs):
            return real
        try:
            fake = self._fake(func, types, args, kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            if why is None:
                self.note(SIZE)
            fake = real if not isinstance(real, Tensor | tuple) else _each(self._like, real)
        return carry(fake, real)

    def _fake(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if kwargs.get("generator") is not None:
            kwargs = {**kwargs, "generator": None}
        self._inside = True
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._inside = False

    def _like(self, real: Any) -> Any:
        if not isinstance(real, Tensor):
            return real
        options = {"dtype": real.dtype, "device": CUDA}
        return self._fake(aten.empty_strided.default, (), (real.shape, real.stride()), options)


def on_host(func: Any, args: Any, kwargs: Any) -> Any:
    """An operator of the host. Without a driver no memory can be pinned; it makes no difference to the numbers."""
    if func is aten._pin_memory.default:
        return args[0].clone()
    if func is aten.is_pinned.default:
        return False
    return func(*args, **{key: value for key, value in kwargs.items() if key != "pin_memory"})


def waits_for(func: Any, args: Any, kwargs: Any) -> str | None:
    """Why the host waits for this operator, None if it does not (or if only the size of the result says so)."""
    if func is aten._local_scalar_dense.default:
        return READ
    ends = _copied(func, args, kwargs)
    if ends is not None:
        source, target, waits = ends
        return None if source == target or not waits else TO_HOST if target == "cpu" else TO_DEVICE
    name = func.overloadpacket.__name__
    if name in INDEXING and _on_device(args[0]):
        for index in args[1]:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                return MASK
            if index is not None and not _on_device(index):
                return HOST_INDEX
    return STATUS if name in WITH_STATUS else None


def asked_by() -> str:
    """The innermost function of the package that is being called; of Lightning or PyTorch's mixed precision, else."""
    frame, library = sys._getframe(1), "nobody"
    while frame is not None:
        name, code = frame.f_code.co_filename, frame.f_code.co_qualname.split(".<locals>")[0]
        if name.startswith(PACKAGE):
            return f"{name.removeprefix(PACKAGE)}:{code}"
        if library == "nobody" and any(part in name for part in LIBRARIES):
            library = f"{name.rsplit('site-packages/')[-1]}:{code}"
        frame = frame.f_back
    return library


def numbers(tensor: Tensor) -> Tensor:
    """What a tensor holds, on the host; nothing waits."""
    return _numbers(tensor)


@functools.cache
def is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _copied(func: Any, args: Any, kwargs: Any) -> tuple[str, str, bool] | None:
    """From where to where an operator copies, and whether the host waits for it."""
    if func is aten._to_copy.default:
        target = kwargs.get("device") or args[0].device
        return args[0].device.type, target.type, not kwargs.get("non_blocking")
    if func is aten.copy_.default:
        return args[1].device.type, args[0].device.type, not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
    return None


def _to_host(func: Any, args: Any, kwargs: Any) -> bool:
    ends = _copied(func, args, kwargs)
    return ends is not None and ends[1] == "cpu"


def _on_device(value: Any) -> bool:
    if isinstance(value, FakeTensor):
        return value.fake_device.type == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"


def _any_on_device(values: Any) -> bool:
    return any(
        _any_on_device(value)
        if isinstance(value, list | tuple) and not isinstance(value, torch.Size)
        else _on_device(value)
        for value in values
    )


def _each(act: Any, value: Any) -> Any:
    """`act` on everything in lists, tuples and dicts; quicker than PyTorch's for arguments of operators."""
    if isinstance(value, list | tuple) and not isinstance(value, torch.Size):
        return (
            type(value)(_each(act, part) for part in value) if type(value) in (list, tuple) else act_named(act, value)
        )
    if isinstance(value, dict):
        return {key: _each(act, part) for key, part in value.items()}
    return act(value)


def act_named(act: Any, value: Any) -> tuple[Any, ...]:
    """The parts of a named result, torch.return_types.max and its like."""
    return tuple(_each(act, part) for part in value)


def _called_cuda(value: Any) -> Any:
    return CUDA if isinstance(value, torch.device) and value.type == "lazy" else value


def _numbers(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        return value.numbers
    return CPU if isinstance(value, torch.device) else value


def carry(fake: Any, real: Any) -> Any:
    """Give each fake tensor of a result its numbers.

    What a kernel keeps for its backward pass may have another size on a CPU; results have not.
    """
    if isinstance(fake, FakeTensor):
        assert fake.shape == real.shape and fake.dtype == real.dtype, f"fake {fake}, real {real.shape} {real.dtype}"
        fake.numbers = real
    elif isinstance(fake, list | tuple):
        for place, (one, number) in enumerate(zip(fake, real, strict=True)):
            if place and isinstance(one, FakeTensor):
                one.numbers = number
            else:
                carry(one, number)
    return fake
