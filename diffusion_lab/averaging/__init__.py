"""Averages of the weights: their rules, snapshots of them, and the reconstruction of other widths."""

from diffusion_lab.averaging.rules import (
    AveragingRule,
    ConstantDecay,
    Name,
    PowerFunction,
    exponent,
    name_of,
    short,
    std_of,
)
from diffusion_lab.averaging.snapshots import Coefficients, Snapshot, coefficients, drop_after, snapshots, write

__all__ = [
    "AveragingRule", "Coefficients", "ConstantDecay", "Name", "PowerFunction", "Snapshot", "coefficients", "drop_after",
    "exponent", "name_of", "short", "snapshots", "std_of", "write",
]  # fmt: skip
