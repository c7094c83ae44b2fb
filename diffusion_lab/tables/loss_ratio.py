"""The validation loss in ranges of timesteps, relative to that of the run from which training went on."""

from __future__ import annotations

import numpy as np

from diffusion_lab.tables.measure import Entry, Measure, Measured


class LossRatio(Measure):
    """Mean over a range of timesteps of log10(loss / loss of the starting run), at the end of training.

    The validation loss is that of the weights that are trained or of their average, whichever the run logs; of the
    starting run it is the last one.

    Args:
        ranges: first and last share of T of each cell, in the order of the column's cells.
        key: logged list over equal ranges of timesteps.
    """

    better = "lower"

    def __init__(self, ranges: list[list[float]], key: str = "val/loss_t") -> None:
        self.ranges, self.key = ranges, key

    def __call__(self, entry: Entry) -> Measured:
        assert entry.start is not None, "every row of the table but the first starts from it"
        ours, theirs = (run.curve(self.key).values[-1] for run in (entry.runs[0], entry.start))
        change, bins = np.log10(ours / theirs), len(ours)
        parts = [slice(round(first * bins), round(last * bins)) for first, last in self.ranges]
        return Measured("log10 of the loss over the start's", [float(np.nanmean(change[part])) for part in parts])
