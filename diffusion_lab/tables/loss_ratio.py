"""The validation loss in ranges of timesteps, relative to that of the run from which training went on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diffusion_lab.tables.measure import Entry, Measure, Measured


class LossRatio(Measure):
    """Mean over a range of timesteps of log10(loss / loss of the starting run), each at the end of its training.

    Args:
        ranges: column -> first and last share of T.
        key: logged list over equal ranges of timesteps.
    """

    better = "lower"

    def __init__(self, ranges: Mapping[str, Sequence[float]], key: str = "val/loss_t") -> None:
        self.ranges, self.key = dict(ranges), key

    def __call__(self, entry: Entry) -> Measured:
        if entry.start is None:
            return Measured("", [None] * len(entry.column.at))
        ours, theirs = (run.curve(self.key).values[-1] for run in (entry.runs[0], entry.start))
        first, last = (round(share * len(ours)) for share in self.ranges[entry.column.name])
        change = float(np.nanmean(np.log10(ours[first:last] / theirs[first:last])))
        return Measured("log10 of the loss over the start's", [change] * len(entry.column.at))
