"""What an operator is for, and whose code a function is: the rows of a profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from pstats import Stats
from typing import NamedTuple

# The first kind one of whose words an operator's name contains.
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
# Folder in a function's path -> what its row is called.
PACKAGES = {"torch": "PyTorch: Python", "lightning": "Lightning", "diffusion_lab": ""}


def by_kind(operators: Mapping[str, float]) -> dict[str, float]:
    """Operator -> milliseconds, as kind -> milliseconds; 0 for a kind that there is none of."""
    spent: dict[str, float] = defaultdict(float)
    for name, value in operators.items():
        kinds = (kind for kind, words in KINDS.items() if any(word in name for word in words))
        spent[next(kinds, "everything else")] += value
        spent["all"] += value
    return spent


class Function(NamedTuple):
    """One function of a cProfile.

    Args:
        file: that it stands in; "~" for one written in C.
        name: as cProfile tells it.
        calls: number of them.
        own: seconds in it, without those that it calls.
        whole: seconds in it, with those that it calls.
    """

    file: str
    name: str
    calls: int
    own: float
    whole: float


def functions(stats: Stats) -> Iterator[Function]:
    """All functions; `get_stats_profile`, which typing knows, has only one of each name."""
    for (file, _, name), (_, calls, own, whole, _) in vars(stats)["stats"].items():
        yield Function(file, name, calls, own, whole)


def whose(file: str, function: str) -> str:
    """Whose code a function is, as cProfile names it: ours by folder, operators and the backward pass by themselves."""
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
