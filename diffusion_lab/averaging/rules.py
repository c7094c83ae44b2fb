"""Averaging rules: how much of the new weights enters each average of the weights, as a function of the step.

    a_0 = theta_0,   a_k = (1 - s_k) a_{k-1} + s_k theta_k,   s_k in [0, 1]

k counts optimizer steps from 1. A rule is a pure function of the step, so a resumed run continues exactly. The power
function's profile has a width that is a share of the training length:

    p(tau; t) = (g + 1) tau^g / t^(g + 1),   0 <= tau <= t          the weight of the weights of time tau at time t
    std^2 = (g + 1) / ((g + 2)^2 (g + 3))                           its standard deviation relative to t
    g^3 + 7 g^2 + (16 - std^-2) g + (12 - std^-2) = 0               its inverse: the largest real root

(Karras et al., "Analyzing and Improving the Training Dynamics of Diffusion Models", arXiv 2312.02696, appendix C,
equations 121 to 127.) At g = 0 the average is uniform over the whole training and std = 1/sqrt(12), which is the widest
profile that does not prefer the earliest weights.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from diffusion_lab.arguments import check_integer, check_number

Name = float | str  # a decay, or a word such as "std-0.05"
WIDEST = 1 / math.sqrt(12)  # std of the uniform average, g = 0
CURE = "use 0.05 or 0.1, as EDM2 does"


def short(name: Name) -> str:
    """The name of an average as it is printed."""
    return name if isinstance(name, str) else f"{name:g}"


class AveragingRule(ABC):
    """step -> the share of the new weights in each average.

    Attributes:
        names: of the averages, each once; evaluations use the first. `weights=` selects one by its name.
        argument: the constructor's argument that determines the names, for messages.
        snapshot_every: optimizer steps between two snapshots of the averages; 0 writes none.
    """

    names: tuple[Name, ...]
    argument: ClassVar[str] = "names"
    snapshot_every: int = 0

    @abstractmethod
    def shares(self, step: int) -> Sequence[float]:
        """s_k in [0, 1] of each average in `names`, for the update number `step`, counted from 1."""


class ConstantDecay(AveragingRule):
    """s_k = 1 - d,   d = decay, or min(decay, (1 + k)/(10 + k)) with warm-up.

    Args:
        decays: each in [0, 1); evaluations use the first. 0.9999 in most papers at 500k steps.
        warmup: whether the decay rises with the step, so that short runs forget the initial weights
            (ku-dmlab/Adaptive-Timestep-Sampler and ddpm-torch use it).

    Raises:
        ValueError: no decay, a decay outside [0, 1), or a repeated decay.
    """

    argument = "decays"

    def __init__(self, decays: Sequence[float] = (0.9999,), warmup: bool = True) -> None:
        if len(decays) == 0 or len(set(decays)) != len(decays):
            raise ValueError(f"decays={list(decays)} must name at least one decay, each once; use [0.9999]")
        for decay in decays:
            check_number("decays", decay, "[)", 0, 1, "use 0.9999 for the published setting")
        self.names, self.warmup = tuple(decays), warmup

    def shares(self, step: int) -> Sequence[float]:
        highest = (1 + step) / (10 + step) if self.warmup else 1.0
        return [1.0 - min(float(decay), highest) for decay in self.names]


def exponent(std: float) -> float:
    """g of the profile with this relative standard deviation.

    Raises:
        ValueError: std is outside (0, 1/sqrt(12)).
    """
    check_number("std", std, "()", 0, WIDEST, CURE)
    inverse = float(std) ** -2
    return float(np.roots([1.0, 7.0, 16.0 - inverse, 12.0 - inverse]).real.max())


def name_of(std: float) -> str:
    """The name of the average with this std, such as "std-0.05"."""
    return f"std-{std:g}"


def std_of(name: str) -> float | None:
    """The std in a name made by `name_of`; None for any other name."""
    match = re.fullmatch(r"std-(\d+(\.\d+)?|\.\d+)", name)
    return float(match[1]) if match else None


class PowerFunction(AveragingRule):
    """s_k = 1 - (1 - 1/k)^(g + 1),   k after the step, so that the first update replaces the initial weights.

    The weight of theta_i in a_k is then (i^(g+1) - (i-1)^(g+1)) / k^(g+1): the integral of the profile over step i.
    The averages forget the beginning of every run, short or long, without a warm-up. From snapshots of two of them the
    average of any other width is reconstructed after the training (`snapshots.py`).

    Args:
        stds: widths relative to the training so far, each in (0, 1/sqrt(12)); evaluations use the first. EDM2 tracks
            0.05 and 0.1.
        snapshot_every: optimizer steps between two snapshots, each with one file per std as large as the weights; 0:
            none. At least 20 in a run are advisable.

    Raises:
        ValueError: no std, a std out of range or with too many digits for a file's name, or a repeated std.
    """

    argument = "stds"

    def __init__(self, stds: Sequence[float] = (0.05, 0.1), snapshot_every: int = 100) -> None:
        if len(stds) == 0 or len(set(map(name_of, stds))) != len(stds):
            raise ValueError(f"stds={list(stds)} must name at least one std, each once; use [0.05,0.1]")
        for std in stds:
            check_number("stds", std, "()", 0, WIDEST, CURE)
            if snapshot_every and std_of(name_of(std)) != float(std):
                use = max(math.floor(1e4 * std), 1) / 1e4
                raise ValueError(f"stds={std} must be at least 0.0001 and have at most six digits; use {use}")
        self.snapshot_every = check_integer("snapshot_every", snapshot_every, 0, "0 optimizer steps turn them off")
        self.names = tuple(map(name_of, stds))
        self._exponents = tuple(map(exponent, stds))

    def shares(self, step: int) -> Sequence[float]:
        if step == 1:
            return [1.0] * len(self.names)
        rest = math.log1p(-1.0 / step)
        return [-math.expm1((g + 1.0) * rest) for g in self._exponents]
