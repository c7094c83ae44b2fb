"""The kind of an operator and the package of a function: the rows of a profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from pstats import Stats
from typing import NamedTuple

# An operator has the first kind with a word that its name contains.
KINDS = {
    "convolutions": ("convolution",),
    "GroupNorm": ("group_norm", "batch_norm"),
    "attention": ("attention", "softmax", "bmm"),
    "linear layers": ("addmm", "aten::mm"),
    "SiLU": ("silu",),
    "dropout": ("dropout", "bernoulli"),
    "Adam, clip, EMA": ("_fused_adam", "_foreach", "linalg_vector_norm", "lerp"),
    "copies": ("copy", "aten::cat", "aten::clone", "index"),
    "sums and products": ("add", "sub", "mul", "div", "sum", "mean"),
}
# Folder in a function's path -> name of its row.
PACKAGES = {"torch": "PyTorch: Python", "lightning": "Lightning", "diffusion_lab": ""}


def by_kind(operators: Mapping[str, float]) -> dict[str, float]:
    """Operator -> milliseconds, as kind -> milliseconds; 0 for a kind without operators."""
    spent: dict[str, float] = defaultdict(float)
    for name, value in operators.items():
        kinds = (kind for kind, words in KINDS.items() if any(word in name for word in words))
        spent[next(kinds, "everything else")] += value
        spent["all"] += value
    return spent


class Function(NamedTuple):
    """One function of a cProfile.

    Args:
        file: its file; "~" for a function written in C.
        name: as reported by cProfile.
        calls: number of calls.
        own: seconds in it, without the functions that it calls.
        whole: seconds in it, with the functions that it calls.
    """

    file: str
    name: str
    calls: int
    own: float
    whole: float


def functions(stats: Stats) -> Iterator[Function]:
    """All functions; `get_stats_profile`, which has types, merges functions of the same name."""
    for (file, _, name), (_, calls, own, whole, _) in vars(stats)["stats"].items():
        yield Function(file, name, calls, own, whole)


def package_of(file: str, function: str) -> str:
    """The package of a function of cProfile: ours by folder, with separate rows for operators and the backward pass."""
    if file == "~":  # written in C
        if "run_backward" in function:
            return "PyTorch: backward pass"
        return "PyTorch: operators" if "torch" in function.lower() else "Python's own functions"
    folders = Path(file).parts[:-1]
    for folder, name in PACKAGES.items():
        if folder in folders:
            last = len(folders) - 1 - folders[::-1].index(folder)
            return name or ".".join(folders[last : last + 2])
    return "other libraries"
