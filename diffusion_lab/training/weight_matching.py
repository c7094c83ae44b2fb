"""Which tensors of trained weights fit into a model, by name and shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from torch import Size, Tensor

SHOWN = 4  # names in a message


class WeightMatch(NamedTuple):
    """What of trained weights goes where.

    Attributes:
        loaded: tensors that fit, by their name in the model.
        sentence: which tensors do not fit; "" if all do.
    """

    loaded: dict[str, Tensor]
    sentence: str


def match_weights(wanted: Mapping[str, Size], given: Mapping[str, Tensor], free: Collection[str]) -> WeightMatch:
    """The tensors of `given` that fit into a model.

    Args:
        wanted: shapes of the model's tensors by name.
        given: trained tensors by name.
        free: names that may be missing or have another shape on either side.

    Raises:
        ValueError: another tensor is missing or has another shape, or nothing fits: `must ...; use ...`.
    """
    wrong = [name for name in [*wanted, *(given.keys() - wanted.keys())] if not _fits(name, wanted, given)]
    if bad := [name for name in wrong if name not in free]:
        first = min(bad, key=list(wanted).index) if set(bad) <= wanted.keys() else bad[0]
        raise ValueError(
            f"must hold the weights of this run's network, and {len(bad)} tensors do not fit: {first} "
            f"{_compared(first, wanted, given)}; use the network that it was trained with"
        )
    loaded = {name: given[name] for name in wanted if name not in wrong}
    if not loaded:
        raise ValueError("must hold the weights of this run's network, and none fits; use the one it was trained with")
    return WeightMatch(loaded, _sentence(wrong, len(loaded), wanted, given))


def without_prefix(given: Mapping[str, Tensor], names: Collection[str]) -> dict[str, Tensor]:
    """Weights under `names`, which in a file may all have a common prefix such as `module.`; the others are left out.
    Or all `names` begin with a prefix that the file lacks, because the network wraps the one whose weights they are.

    Of several prefixes, e.g. of a model and its average in one file, it is the one under which most names are found.
    """
    prefixes = {key.removesuffix(name) for name in names for key in given if f".{key}".endswith(f".{name}")}
    if not prefixes:
        own = {name.partition(".")[0] for name in names}
        return (
            {f"{first}.{key}": value for first in own for key, value in given.items()} if len(own) == 1 else dict(given)
        )
    best = max(sorted(prefixes), key=lambda prefix: sum(prefix + name in given for name in names))
    return {key.removeprefix(best): value for key, value in given.items() if key.startswith(best)}


def _fits(name: str, wanted: Mapping[str, Size], given: Mapping[str, Tensor]) -> bool:
    return name in wanted and name in given and wanted[name] == given[name].shape


def _compared(name: str, wanted: Mapping[str, Size], given: Mapping[str, Tensor]) -> str:
    here = f"is {tuple(wanted[name])} here" if name in wanted else "is not in it here"
    there = f"{tuple(given[name].shape)} there" if name in given else "missing there"
    return f"{here} and {there}"


def _sentence(wrong: list[str], count: int, wanted: Mapping[str, Size], given: Mapping[str, Tensor]) -> str:
    if not wrong:
        return ""
    some = ", ".join(f"{name} ({_compared(name, wanted, given)})" for name in wrong[:SHOWN])
    more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
    initial = "which keep their initial values" if set(wrong) & wanted.keys() else "which have no place"
    return f"{count} tensors are loaded, all but {some}{more}, {initial}"
