"""p, w and their product as text: small curves of block characters for a terminal, plain columns for a pipe."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from diffusion_lab.reports.shown import DECADES, Shown, binned, log_snr_range, on_axis, quantiles, wide

BLOCKS = " ▁▂▃▄▅▆▇█"
NAME, CURVE, GAP, ROWS = 17, 30, 2, 2  # characters; a line has 80


def plain_lines(found: Sequence[Shown], loss: str) -> list[str]:
    """One line per method and range of timesteps, as the run's log has them: p and p w summed, w averaged.
    p w is divided by its sum over all timesteps."""
    lines = [f"# method  timestep  log_snr  p  w({loss})  p*w(sum=1)"]
    for one in found:
        size = binned(np.ones_like(one.p))
        middle, log_snr = binned(np.arange(len(one.p)) + 0.5) / size, binned(one.log_snr) / size
        columns = zip(middle, log_snr, binned(one.p), binned(one.weight) / size, binned(one.product), strict=True)
        lines += [f"{one.name}  " + "  ".join(f"{value:.6g}" for value in row) for row in columns]
    return lines


def plot_lines(found: Sequence[Shown], loss: str) -> list[str]:
    """Three blocks of curves, p, w and p w, each by timestep on the left and by ln SNR on the right."""
    names = [one.name for one in found]
    density = [one.p / one.nats for one in found]
    share = [one.product / one.nats for one in found]
    times = [len(one.p) * one.p for one in found], [len(one.p) * one.product for one in found]
    weight = [one.weight for one in found]
    low, high = log_snr_range(found)
    t = [(np.arange(len(one.p)) + 0.5) / len(one.p) for one in found]
    sides = (t, (np.arange(CURVE) + 0.5) / CURVE), ([one.log_snr for one in found], np.linspace(high, low, CURVE))
    log = wide(found)
    scale = f", {DECADES} decades" if log else ""
    lines = [_pair("", "by timestep t", "per nat of ln SNR")]
    for title, left, right, by_decade in (
        ("p: how often it is drawn", times[0], density, False),
        (f"w: weight on the {loss}-loss{scale}", weight, weight, log),
        ("p w: share of the objective", times[1], share, False),
    ):
        tops = [_top(values) for values in (left, right)]
        lines += ["", title]
        lines.append(_pair("", *(f"highest {top:.3g}" for top in tops)))
        curves = [
            [_curve(on_axis(x, y, grid), top, by_decade) for x, y in zip(xs, values, strict=True)]
            for (xs, grid), values, top in zip(sides, (left, right), tops, strict=True)
        ]
        for name, first, second in zip(names, *curves, strict=True):
            lines += [_pair(name if i == ROWS - 1 else "", first[i], second[i]) for i in range(ROWS)]
    axis = f"0{'T-1':>{CURVE - 1}}", f"{high:<+.1f}{f'{low:+.1f}':>{CURVE - len(f'{high:+.1f}')}}"
    noise = [f"clean{'noise':>{CURVE - 5}}"] * 2
    return [*lines, _pair("", *axis), _pair("", *noise), *_sentences(found)]


def _pair(name: str, left: str, right: str) -> str:
    short = name if len(name) < NAME else name[: NAME - 2] + "…"
    return f"{short:<{NAME}} {left:<{CURVE}}{' ' * GAP}{right}".rstrip()


def _top(curves: Sequence[np.ndarray]) -> float:
    return float(max(np.nanmax(values) for values in curves))


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


def _sentences(found: Sequence[Shown]) -> list[str]:
    """The median of ln SNR under p and under p w, with the range of 90 %."""
    lines = ["", "ln SNR, median [5 %, 95 %]"]
    for one in found:
        lines.append(_pair(one.name, f"p   {_range(one.log_snr, one.p)}", f"p w {_range(one.log_snr, one.product)}"))
    return lines


def _range(log_snr: np.ndarray, share: np.ndarray) -> str:
    low, middle, high = quantiles(log_snr, share, (0.05, 0.5, 0.95))
    return f"{middle:+.1f} [{low:+.1f}, {high:+.1f}]"
