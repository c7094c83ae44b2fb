"""The analyses of the runs in a folder, each with its figure and its sentence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.plotting import as_address
from diffusion_lab.runs.analyses import Analysed, read_analyses
from diffusion_lab.runs.run import RunFolder


class Shown(NamedTuple):
    """One analysis on the page.

    Attributes:
        title: its name in words.
        where: its folder, relative to the report's.
        sentence: its interpretation.
        models: the analysed models.
        image: the figure as a `data:` address.
    """

    title: str
    where: str
    sentence: str
    models: str
    image: str


def analysed(folder: RunFolder) -> list[Shown]:
    """The analyses of the folder and of all folders between it and its runs, then those of each run."""
    top = Path(os.path.realpath(folder.path))
    real = [Path(os.path.realpath(run.folder)) for run in folder.runs]
    places = [place for place in real if place.is_relative_to(top)]
    above = {place for run in places for place in run.parents if place.is_relative_to(top)} | {top}
    every = dict.fromkeys([*sorted(above), *places])
    return [_shown(folder, one) for place in every for one in read_analyses(place, top)]


def _shown(folder: RunFolder, one: Analysed) -> Shown:
    title, where = one.name.replace("_", " ").capitalize(), os.path.relpath(one.folder, os.path.realpath(folder.path))
    return Shown(title, where, one.sentence, "; ".join(one.models), as_address(one.figure))
