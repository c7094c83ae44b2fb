"""A number of an analysis of an entry's runs, such as the consistency of two models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from diffusion_lab.tables.measure import Entry, Measure, Measured


class Analysed(Measure):
    """An entry of an array of `diffusion-lab analyze`.

    Args:
        analysis: name of a file in conf/analysis.
        array: name of an array of its data.npz.
        words: further words of its command line, e.g. weights=raw.
        index: which entry of the array, one integer for each axis; what the row has under `pick: {index: ..}` comes
            first. A shorter index than the array has axes stands for the mean over the others.
        quantity: name of the number.
        better: lower or higher; "" if neither is better.
    """

    def __init__(
        self,
        analysis: str,
        array: str,
        words: Sequence[str] = (),
        index: Sequence[int] = (),
        quantity: str = "",
        better: str = "higher",
    ) -> None:
        self.analysis, self.array, self.words, self.index = analysis, array, tuple(words), tuple(index)
        self.quantity, self.better = quantity or array, better

    def __call__(self, entry: Entry) -> Measured:
        facts, data = entry.analyse(self.analysis, entry.runs, self.words)
        array: Any = np.asarray(data[self.array], np.float64)
        index = tuple(entry.row.pick.get("index", self.index))
        value = float(np.mean(array[index]))
        return Measured(self.quantity, [value] * len(entry.column.at), dict(facts.get("protocol", {})))
