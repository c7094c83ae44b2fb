"""Averages of the weights: their rules, snapshots of them, and the reconstruction of other widths."""

from diffusion_lab.averaging.base import AveragingRule, Name, short
from diffusion_lab.averaging.constant_decay import ConstantDecay
from diffusion_lab.averaging.power_function import PowerFunction, exponent, name_of, std_of
from diffusion_lab.averaging.reconstruction import Coefficients, coefficients
from diffusion_lab.averaging.snapshots import Snapshot, drop_after, snapshots, write

__all__ = [
    "AveragingRule",
    "Coefficients",
    "ConstantDecay",
    "Name",
    "PowerFunction",
    "Snapshot",
    "coefficients",
    "drop_after",
    "exponent",
    "name_of",
    "short",
    "snapshots",
    "std_of",
    "write",
]
