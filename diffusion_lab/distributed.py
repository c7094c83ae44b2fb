"""The collective operations that the library needs; each is a no-op on one process.

All of them must be called on every rank, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from diffusion_lab.failure import Failure, Interruption


def is_distributed() -> bool:
    """Whether training uses more than one process."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def world_size() -> int:
    """Number of processes, 1 outside torch.distributed."""
    return dist.get_world_size() if is_distributed() else 1


def rank() -> int:
    """This process's number, 0 outside torch.distributed."""
    return dist.get_rank() if is_distributed() else 0


def gather_rows(x: Tensor) -> Tensor:
    """(n, ...) on each of W ranks -> (W*n, ...) in order of rank, on all of them. n must be equal everywhere."""
    if not is_distributed():
        return x
    x = x.contiguous()  # and so are the parts: NCCL copies memory in its order and ignores strides
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def sum_(x: Tensor) -> Tensor:
    """Sum over the ranks, in place."""
    if is_distributed():
        dist.all_reduce(x)
    return x


def broadcast_(x: Tensor) -> Tensor:
    """Every rank's x becomes that of rank 0, in place."""
    if is_distributed():
        dist.broadcast(x, 0)
    return x


def gather_objects(x: Any) -> list[Any]:
    """Every rank's x, in order of rank, on all of them."""
    if not is_distributed():
        return [x]
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, x)
    return gathered


@contextmanager
def raised_on_all() -> Iterator[None]:
    """An error of one rank inside ends the block on all of them, so that none waits for it in the next operation.

    For work of which each rank does its share; there must be no collective operation inside.

    Raises:
        Failure: another rank had an error, which the message repeats; a rank with an error raises its own.
    """
    own = None
    try:
        yield
    except Interruption:
        raise  # at once
    except Exception as error:
        own = error
    said = gather_objects(own and (str(own) or type(own).__name__))
    if own is None and (first := next((r for r, text in enumerate(said) if text), None)) is not None:
        raise Failure(f"rank {first}: {said[first]}")
    if own is not None:
        raise own
