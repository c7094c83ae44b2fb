"""Draws the ratios of the studies' tables, with the intervals and verdicts of their pages (`make pages`).

python -m experiments.study_figures
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from diffusion_lab.files import write_whole
from diffusion_lab.intervals import Interval
from diffusion_lab.plotting import style, svg
from diffusion_lab.reports.figures.along import along_axis
from diffusion_lab.reports.figures.ratios import of_what, sides
from diffusion_lab.reports.figures.table_rows import IntervalLine, with_equality
from diffusion_lab.tables.curves import interval_figure
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import MARGIN, Verdict
from experiments.study_along import along_of
from experiments.study_cells import verdicts

FOLDER = Path(__file__).resolve().parent
STUDIES = {"digits": "fd1k_digits", "fashion_mnist": "fd512_fashion_mnist"}
NAMES = {"methods": "difference-to-ddpm.svg", "precision": "difference-to-the-baseline.svg"}
FIGURES = {  # file of values -> metric and figure
    **{
        f"{study}/{data}.per_seed.csv": (metric, f"{study}/{data}/{name}")
        for study, name in NAMES.items()
        for data, metric in STUDIES.items()
    },
    **{
        f"newer/{base}.per_seed.csv": ("fd2k_digits", f"newer/{base}.svg")
        for base in ("diffusion", "flow", "steps", "guidance")
    },
}
HELD_OUT = {"newer/guidance.svg": "test_fd2k_digits"}  # figure -> the distance to held-out images, as further rows
# Further ones are the FIGURES of the studies' own modules: path -> file of values and what draws it.
ALONG = {"budgets/digits.svg": ("budgets/digits", "max_steps", "fd2k_digits")}  # figure -> files, key and metric


def line(name: str, found: Verdict) -> IntervalLine:
    """A row with its ratio, in logarithms."""
    low, high = (None if end is None else math.log(end) for end in (found.low, found.high))
    text = with_equality(" ".join(ratio_words(found)), found.word)
    return IntervalLine(name, Interval(math.log(found.size), None, low, high, found.n), text, found.word)


def figures() -> Iterator[tuple[str, bytes]]:
    """Each figure's path below `experiments/`, and its content."""
    for values, (metric, figure) in FIGURES.items():
        found = verdicts(FOLDER / values, metric)
        lines = [line(name, one) for name, one in found.items() if one is not None]
        base = next(name for name, one in found.items() if one is None)
        if held_out := HELD_OUT.get(figure):
            beside = verdicts(FOLDER / values, held_out).items()
            lines += [line(f"{name}, held-out images", one) for name, one in beside if one is not None]
        what = "the Fréchet distance" if held_out else metric
        label = sides(of_what("ratio", what, base), "lower")
        with style():
            yield figure, svg(interval_figure(lines, label, "ratio", MARGIN))
    for figure, (place, key, metric) in ALONG.items():
        along = along_of(FOLDER / place, key, metric)._replace(metric="the Fréchet distance", key="training steps")
        with style():
            yield figure, svg(along_axis(along))
    for module in sorted(FOLDER.glob("*_page.py")):
        own = getattr(import_module(f"experiments.{module.stem}"), "FIGURES", {})
        for figure, (values, draw) in own.items():
            if (FOLDER / values).is_file():
                with style():
                    yield figure, svg(draw())


def main() -> int:
    """Write all figures; returns 0."""
    for figure, content in figures():
        write_whole(FOLDER / figure, content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
