"""What a network is in the diffusers library, where the library has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class ForDiffusers(NamedTuple):
    """A model of the library with the same outputs.

    Attributes:
        architecture: name of its class.
        arguments: of its constructor, without `sample_size`.
        tensors: its weights by name.
        adjustment: lines of Python that correct `model` each time it was loaded; empty where none are needed.
        needs_label: whether every call needs labels, which are 0 for a network without.
    """

    architecture: str
    arguments: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    adjustment: str = ""
    needs_label: bool = False


@runtime_checkable
class InDiffusers(Protocol):
    """A network that the library has; one of your own may have this method as well."""

    def for_diffusers(self) -> ForDiffusers:
        """The same network in the library.

        Raises:
            ValueError: for these arguments the library has none; the message says what differs.
        """
        ...


def renamed(pairs: Iterable[tuple[str, nn.Module]]) -> dict[str, Tensor]:
    """The tensors of modules under other names: (name there, module) -> "name there.weight", "name there.bias"."""
    return {f"{name}.{key}": value for name, module in pairs for key, value in module.state_dict().items()}


def thirds(names: tuple[str, str, str], qkv: nn.Module) -> dict[str, Tensor]:
    """One layer for q, k and v as three Linears of these names; a 1x1 convolution is a Linear."""
    parts = {key: value.flatten(1) if value.ndim > 1 else value for key, value in qkv.state_dict().items()}
    return {
        f"{name}.{key}": third.contiguous()
        for key, value in parts.items()
        for name, third in zip(names, value.chunk(3), strict=True)
    }
