"""Checks that the networks share: each message is one sentence with the key, its value and the cure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_number, nearest

SHOWN = 8  # layers named in a message


class Keywords(NamedTuple):
    """What a function takes by keyword.

    Attributes:
        names: those that it names.
        needed: of these, the ones without a default.
        any: whether it takes every other keyword too, as `**kwargs`.
    """

    names: set[str]
    needed: set[str]
    any: bool

    def takes(self, key: str) -> bool:
        """Whether `key` may be given."""
        return self.any or key in self.names


def keywords(function: Callable[..., Any], behind: int = 0) -> Keywords:
    """The keywords of a function, without those of its first positional arguments, as x and t of a network."""
    parameters = list(inspect.signature(function).parameters.values())
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][behind:]
    named += [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    needed = {p.name for p in named if p.default is p.empty}
    return Keywords({p.name for p in named}, needed, any(p.kind is p.VAR_KEYWORD for p in parameters))


def check_counts(
    in_channels: int, out_channels: int, base_channels: int, channel_multipliers: Sequence[int], num_res_blocks: int
) -> None:
    """What any U-Net is counted by."""
    for name, value in (
        ("in_channels", in_channels),
        ("out_channels", out_channels),
        ("num_res_blocks", num_res_blocks),
    ):
        check_integer(name, value, 1, "give a positive number")
    if base_channels < 4 or base_channels % 4:
        near = sorted({max(4, base_channels // 4 * 4), max(4, base_channels // 4 * 4 + 4)})
        raise ValueError(
            f"base_channels={base_channels} must be a positive multiple of 4, the channels of a normalisation group; "
            f"use {' or '.join(map(str, near))}"
        )
    if not channel_multipliers or any(m < 1 or m != int(m) for m in channel_multipliers):
        raise ValueError(
            f"channel_multipliers={list(channel_multipliers)} must be one integer >= 1 per level; use [1,2,2,2]"
        )


def level_sizes(image_size: int, channel_multipliers: Sequence[int]) -> list[int]:
    """Pixels per side at each level."""
    levels = len(channel_multipliers)
    unit = 2 ** (levels - 1)
    if image_size < 1 or image_size % unit:
        below = image_size // unit * unit
        near = " or ".join(str(size) for size in (below, below + unit) if size > 0)
        fewer = max(k for k in range(1, levels + 1) if image_size % 2 ** (k - 1) == 0)
        raise ValueError(
            f"image_size={image_size} must be a positive multiple of {unit}, because {levels} levels halve it "
            f"{levels - 1} times; use network=unet_any, which fits any size, images of {near} pixels, or "
            f"channel_multipliers with at most {fewer} levels"
        )
    return [image_size // 2**level for level in range(levels)]


def check_attention(attention_resolutions: Sequence[int], sizes: list[int]) -> None:
    """Raise ValueError unless attention is used at existing sizes only."""
    missing = [size for size in attention_resolutions if size not in sizes]
    if missing:
        raise ValueError(
            f"attention_resolutions={list(attention_resolutions)} must be sizes that occur, but {missing[0]} does not; "
            f"the levels work at {', '.join(map(str, sizes))} pixels (use [] for attention in the middle only, or "
            "network=unet_any, which fits any size)"
        )


def check_dropout(dropout: float) -> None:
    """A probability below 1."""
    check_number("dropout", dropout, "[)", 0, 1, "use 0.1 for DDPM on CIFAR-10")


def check_classes(num_classes: int | None) -> None:
    """At least one class, or none at all."""
    if num_classes is not None:
        check_integer("num_classes", num_classes, 1, "use null for a network without labels")


def check_label(label: Tensor | None, num_classes: int | None) -> None:
    """A network must get labels if and only if it has classes."""
    if (label is None) != (num_classes is None):
        given = "no label" if label is None else "labels"
        raise ValueError(
            f"num_classes={num_classes} does not go with a batch that has {given}; "
            "give the network the data's number of classes and the data conditional=True, or neither"
        )


def layer_fault(network: nn.Module, name: str, key: str = "layers") -> str | None:
    """The message for a name, given as `key`, that is no module inside the network, else None."""
    inside = [key for key, _ in network.named_modules() if key]
    if name in inside:
        return None
    blocks = [key for key in inside if key.rpartition(".")[2].isdigit() and key.count(".") == 1] or inside
    return (
        f"{key}={name} must be a module inside {type(network).__name__}{nearest(name, inside)}; use one of its "
        f"named_modules(), e.g. {', '.join(blocks[:SHOWN])}"
    )
