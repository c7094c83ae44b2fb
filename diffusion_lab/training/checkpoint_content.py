"""What a checkpoint holds: the types of its entries. A file from elsewhere may hold anything in their places.

The table has each entry that this library or Lightning reads back. Whether an entry fits the run, its shapes and names,
is found when it is restored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from diffusion_lab.files import deeper, is_count

Kind = Any  # a type, several of them, a check of the value, or {entry: Kind} of those that are there


def wrong_entry(content: dict[Any, Any]) -> str | None:
    """The dotted name of the first entry of another type than a run writes, or nested too deeply for recursive code;
    None if there is none."""
    return _wrong(content, CONTENT, "")


def _wrong(value: Any, kind: Kind, name: str) -> str | None:
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return name
        of_all = kind.get(...)
        for key, inner in value.items():
            one = kind.get(key, of_all)
            if one is not None and (found := _wrong(inner, one, f"{name}.{key}".lstrip("."))):
                return found
        return None
    if isinstance(kind, list):
        if not isinstance(value, list | tuple):
            return name
        found = (_wrong(inner, kind[0], f"{name}[{i}]") for i, inner in enumerate(value))
        return next((one for one in found if one), None)
    good = isinstance(value, kind) if isinstance(kind, type) else kind(value)
    return None if good else name


def _time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _named(kind: Kind) -> Callable[[Any], bool]:
    """Entries of one kind, whose names are texts."""
    return lambda value: (
        isinstance(value, dict)
        and all(isinstance(key, str) and _wrong(inner, kind, key) is None for key, inner in value.items())
    )


def _weights(value: Any) -> bool:
    named = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return named and all(isinstance(one, Tensor) or key.endswith("_extra_state") for key, one in value.items())


def _counters(value: Any) -> bool:
    """The state of a loop: nested counts, and no texts."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _counters(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(map(_counters, value))
    return value is None or isinstance(value, bool | Tensor) or is_count(value) or isinstance(value, float)


def _shallow(value: Any) -> bool:
    """The state of a part, which checks it when it takes it."""
    return isinstance(value, dict) and not deeper(value)


CONTENT: dict[Any, Kind] = {
    **dict.fromkeys(("format", "global_step", "epoch", "accumulate"), is_count),
    "pytorch-lightning_version": str,
    "state_dict": _weights,
    "loops": _named(lambda value: not deeper(value) and isinstance(value, dict) and _counters(value)),
    "optimizer_states": [{"state": _shallow, "param_groups": [_named(lambda value: not deeper(value))]}],
    "lr_schedulers": [_shallow],
    "may_be_infinite": [str],
    "callbacks": {
        "RunRecord": {"config": _shallow, "config_hash": str, "lines": _named(is_count), "owed": [str]},
        "Progress": {"seconds": _time, "evaluating": _time},
        "EMA": _named(_weights),
        "TimestepLog": {"tables": Tensor, "auxiliary": Tensor},
        "AdversarialLog": {"sums": Tensor},
        ...: _shallow,  # of a sampler, or of a callback of the user's
    },
}
