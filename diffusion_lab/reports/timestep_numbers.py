"""What `diffusion-lab show` prints: how often a method draws each timestep, with which weight, before training.

With p the probability of a timestep and w its weight on the loss of choice, the product p w / sum p w is its share of
the objective. All three are shown by timestep and by lambda = ln SNR: as plain columns, as small curves of block
characters for a terminal, and as a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diffusion_lab.files import write_whole
from diffusion_lab.plotting import line_style, log_axis, log_snr_axis, panels, style, svg

EDGES = (0.002, 0.998)  # shares of p and of p w between which the axis of ln SNR lies; cosine's last bins span 10 nats
DECADES = 4  # of a logarithmic axis of weights, from the largest down
BLOCKS = " ▁▂▃▄▅▆▇█"
NAME, CURVE, GAP, ROWS = 17, 30, 2, 2  # characters; a line has 80


@dataclass(frozen=True)
class TimestepNumbers:
    """One method; arrays are (T,) float64 with timestep 0, the least noisy, first.

    Args:
        name: of the method.
        log_snr: ln SNR of each timestep, falling.
        p: probability of each timestep.
        weight: mean weight of a draw times the weight on the loss of choice, as they are.
        note: what a reader must know, or "".
    """

    name: str
    log_snr: np.ndarray
    p: np.ndarray
    weight: np.ndarray
    note: str = ""

    @property
    def product(self) -> np.ndarray:
        """p w / sum p w: each timestep's share of the objective, as `sampler/objective` of a run's log for eps."""
        product = self.p * self.weight
        return product / product.sum()

    @property
    def nats(self) -> np.ndarray:
        """Width of each timestep's bin in ln SNR: between the midpoints to its neighbours, all of a gap at the ends.

        A share of the objective divided by it is a density in lambda = ln SNR, in which objectives on different
        schedules can be compared: on the eps-loss it is the weighting function w(lambda) of Kingma and Gao
        ("Understanding diffusion objectives as the ELBO with simple data augmentation", NeurIPS 2023), up to a factor.
        """
        return np.abs(np.gradient(self.log_snr)) if len(self.p) > 1 else np.ones(1)

    @property
    def t(self) -> np.ndarray:
        """The middle of each timestep's bin on an axis from 0 to 1."""
        return (np.arange(len(self.p)) + 0.5) / len(self.p)

    @property
    def by_timestep(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """p and p w as multiples of 1/T, with the weight between them."""
        return self.p * len(self.p), self.weight, self.product * len(self.p)

    @property
    def per_nat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """p and p w per nat of ln SNR, with the weight between them."""
        return self.p / self.nats, self.weight, self.product / self.nats


def titles(loss: str) -> tuple[str, str, str]:
    """What the three curves of a method are; `loss` is the one that w weights."""
    return "p: how often it is drawn", f"w: weight on the {loss}-loss", "p w: share of the objective"


def wide(found: Sequence[TimestepNumbers]) -> bool:
    """Whether the weights need a logarithmic axis: the largest is over 20 times the smallest positive one."""
    weights = np.concatenate([one.weight[one.weight > 0] for one in found])
    return len(weights) > 0 and bool(weights.max() > 20 * weights.min())


def log_snr_range(found: Sequence[TimestepNumbers]) -> tuple[float, float]:
    """Lowest and highest ln SNR at which a method trains: between the quantiles `EDGES` of p and of p w of each."""
    ends = [quantiles(one.log_snr, share, EDGES) for one in found for share in (one.p, one.product)]
    return min(a for a, _ in ends), max(b for _, b in ends)


def quantiles(log_snr: np.ndarray, share: np.ndarray, levels: Sequence[float]) -> list[float]:
    """Quantiles of ln SNR (T,), which falls, under a share (T,) of the timesteps."""
    total = np.cumsum(share[::-1])  # from the noisiest, where ln SNR is lowest
    return [float(log_snr[::-1][min(np.searchsorted(total, q), len(share) - 1)]) for q in levels]


def binned(values: np.ndarray, bins: int = 20) -> np.ndarray:
    """Sums over equal ranges of timesteps, t in range floor(t bins/T), as in a run's log."""
    bins = min(bins, len(values))
    return np.bincount(np.arange(len(values)) * bins // len(values), weights=values, minlength=bins)


def on_axis(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Linear interpolation at the grid's places for a monotone x, NaN outside of it."""
    order = np.argsort(x)
    return np.interp(grid, x[order], values[order], left=np.nan, right=np.nan)


def plain_lines(found: Sequence[TimestepNumbers], loss: str) -> list[str]:
    """One line per method and range of timesteps, as the run's log has them: p and p w summed, w averaged.
    p w is divided by its sum over all timesteps."""
    lines = [f"# method  timestep  log_snr  p  w({loss})  p*w(sum=1)"]
    for one in found:
        size = binned(np.ones_like(one.p))
        middle, log_snr = binned(np.arange(len(one.p)) + 0.5) / size, binned(one.log_snr) / size
        columns = zip(middle, log_snr, binned(one.p), binned(one.weight) / size, binned(one.product), strict=True)
        lines += [f"{one.name}  " + "  ".join(f"{value:.6g}" for value in row) for row in columns]
    return lines


def plot_lines(found: Sequence[TimestepNumbers], loss: str) -> list[str]:
    """Three blocks of curves, p, w and p w, each by timestep on the left and by ln SNR on the right."""
    low, high = log_snr_range(found)
    grids = (np.arange(CURVE) + 0.5) / CURVE, np.linspace(high, low, CURVE)
    places = [one.t for one in found], [one.log_snr for one in found]
    curves = [one.by_timestep for one in found], [one.per_nat for one in found]
    log = wide(found)
    lines = [_pair("", "by timestep t", "per nat of ln SNR")]
    for row, title in enumerate(titles(loss)):
        sides = [[three[row] for three in side] for side in curves]
        tops = [float(max(np.nanmax(values) for values in side)) for side in sides]
        lines += ["", title + (f", {DECADES} decades" if log and row == 1 else "")]
        lines.append(_pair("", *(f"highest {top:.3g}" for top in tops)))
        drawn = [
            [_curve(on_axis(x, y, grid), top, log and row == 1) for x, y in zip(xs, side, strict=True)]
            for xs, side, grid, top in zip(places, sides, grids, tops, strict=True)
        ]
        for one, left, right in zip(found, *drawn, strict=True):
            lines += [_pair(one.name if i == ROWS - 1 else "", left[i], right[i]) for i in range(ROWS)]
    axis = f"0{'T-1':>{CURVE - 1}}", f"{high:<+.1f}{f'{low:+.1f}':>{CURVE - len(f'{high:+.1f}')}}"
    noise = [f"clean{'noise':>{CURVE - 5}}"] * 2
    return [*lines, _pair("", *axis), _pair("", *noise), *_medians(found)]


def _pair(name: str, left: str, right: str) -> str:
    short = name if len(name) < NAME else name[: NAME - 2] + "…"
    return f"{short:<{NAME}} {left:<{CURVE}}{' ' * GAP}{right}".rstrip()


def _curve(values: np.ndarray, top: float, log: bool) -> list[str]:
    """ROWS lines of block characters, the upper first; a blank where there is no value."""
    heights = values / top
    if log:
        with np.errstate(divide="ignore"):
            heights = 1 + np.log10(heights) / DECADES
    steps = len(BLOCKS) - 1
    level = np.nan_to_num(np.clip(heights, 0, 1), nan=0.0) * ROWS * steps
    level = np.where(np.nan_to_num(values, nan=0.0) > 0, np.maximum(level, 1), level)
    rows = [np.clip(np.round(level) - row * steps, 0, steps).astype(int) for row in reversed(range(ROWS))]
    return ["".join(BLOCKS[i] for i in row) for row in rows]


def _medians(found: Sequence[TimestepNumbers]) -> list[str]:
    """The median of ln SNR under p and under p w, with the range of 90 %."""
    lines = ["", "ln SNR, median [5 %, 95 %]"]
    for one in found:
        lines.append(_pair(one.name, f"p   {_range(one.log_snr, one.p)}", f"p w {_range(one.log_snr, one.product)}"))
    return lines


def _range(log_snr: np.ndarray, share: np.ndarray) -> str:
    low, middle, high = quantiles(log_snr, share, (0.05, 0.5, 0.95))
    return f"{middle:+.1f} [{low:+.1f}, {high:+.1f}]"


def write_figure(folder: Path, found: Sequence[TimestepNumbers], loss: str) -> Path:
    """`show.svg` in a folder, which is made if needed: p, w and p w, by timestep above, by ln SNR below."""
    folder.mkdir(parents=True, exist_ok=True)
    low, high = log_snr_range(found)
    margin = 0.05 * (high - low)
    with style():
        figure, axes = panels(3, 2, 2.9)
        for index, one in enumerate(found):
            line = line_style(index)
            for k, (axis, y) in enumerate(zip(axes, (*one.by_timestep, *one.per_nat), strict=True)):
                x = one.t if k < 3 else one.log_snr
                axis.plot(x, y, color=line.color, linestyle=line.dash, label=one.name)
        for above, below, title in zip(axes[:3], axes[3:], titles(loss), strict=True):
            above.set_title(title)
            above.set_xlabel("timestep t/T (clean to noise)")
            log_snr_axis(below, low - margin, high + margin)
        units = "times 1/T", "weight", "times 1/T", "per nat", "weight", "per nat"
        for axis, unit in zip(axes, units, strict=True):
            axis.set_ylabel(unit)
            if unit == "weight" and wide(found):
                top = max(one.weight.max() for one in found)
                axis.set_ylim(top / 10**DECADES, 2 * top)
                log_axis(axis)
            else:
                axis.set_ylim(bottom=0)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=max(1, 130 // (max(map(len, labels)) + 8)))
        path = folder / "show.svg"
        write_whole(path, svg(figure))
    return path
