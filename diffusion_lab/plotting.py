"""One style for all figures: colours that are safe for colour blindness, labels at the lines, panels on common axes.

The palette is that of Okabe and Ito (2008), without its yellow, which is too faint on white. Beyond seven groups the
colours repeat with another dash, and figures that would draw all groups in one panel use a panel per group.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from diffusion_lab.matplotlibrc import ignore_working_folder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ignore_working_folder()

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES = ("-", "--", ":", "-.")
WIDTH = 10.5  # inches, shown at the page's width
SMALLEST = 8.0  # size in points of any text
LABEL_INCHES = 0.17  # height of a tick label including its distance to the next
RASTER = 160  # dots per inch of rasterised parts
NAME_WIDTH = 34  # characters per line of a name at the left edge
HEADING_WIDTH = 130  # characters per line of a heading
SHORT_NAME = 24  # longest name, in characters, that fits beside a line
LOG_SNR = "ln SNR (clean to noise)"
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a page looks the same everywhere
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.labelcolor": "#333333",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,  # a ratio near 1 has ticks 0.9995, 1.0000, not 0.0000 beside a "+1"
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "svg.hashsalt": "diffusion-lab",  # the same data give the same file
}


class LineStyle(NamedTuple):
    """Colour and dash of a group."""

    color: str
    dash: str


def line_style(index: int) -> LineStyle:
    """Colour and dash of the group number `index` of the report."""
    return LineStyle(PALETTE[index % len(PALETTE)], DASHES[index // len(PALETTE) % len(DASHES)])


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for one figure; imports Matplotlib and restores the user's own settings afterwards."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def panels(
    columns: int,
    rows: int = 1,
    height: float = 3.2,
    sharex: bool = False,
    sharey: bool = False,
    count: int | None = None,
) -> tuple[Figure, list[Axes]]:
    """A figure with rows x columns axes, row by row, or the first `count` of them; `height` in inches per row."""
    figure = _figures()(figsize=(WIDTH, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False, sharex=sharex, sharey=sharey).flat)
    for axis in axes[count:] if count else ():
        axis.set_visible(False)
    return figure, axes[:count]


@cache
def _figures() -> type[Figure]:
    """Matplotlib's `Figure`, laid out once and drawn once per file, and not twice to use the layout of the first."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    class LaidOutOnce(Figure):
        def draw(self, renderer: Any) -> None:
            engine = self.get_layout_engine()
            if isinstance(engine, ConstrainedLayoutEngine):
                engine.execute(self)
                self.set_layout_engine(None)
            else:
                super().draw(renderer)

    return LaidOutOnce


def heading(figure: Figure, text: str) -> None:
    """A text above all panels, broken into lines that fit the figure."""
    figure.suptitle("\n".join(wrap(text, HEADING_WIDTH)), size=9.5)


def many(count: int) -> bool:
    """Whether there are more groups than colours, so that their lines cannot be distinguished in one panel."""
    return count > len(PALETTE)


def columns_of(count: int) -> int:
    """Number of panels per row for `count` panels."""
    return min(count, 5 if many(count) else 4)


def row_names(axis: Axes, names: Sequence[str]) -> None:
    """Names of lines or bars at the left edge, the first on top; long names are wrapped."""
    lines = ["\n".join(wrap(name, width=NAME_WIDTH, break_long_words=True)) for name in names]
    axis.set_yticks(range(len(names)), lines)
    axis.set_ylim(len(names) - 0.4, -0.6)
    tallest = max((line.count("\n") for line in lines), default=0)
    for label in axis.get_yticklabels() if tallest > 1 else ():
        label.set_fontsize(SMALLEST)


def panel_title(axis: Axes, text: str, color: str, count: int) -> None:
    """A group's name above its panel, broken into lines that fit one of `count` panels."""
    lines = wrap(text, width=110 // columns_of(count), break_long_words=True)
    axis.set_title("\n".join(lines), color=color, fontweight="bold", fontsize=8.5 if many(count) else None)


def name_lines(figure: Figure, axes: Sequence[Axes], ends: Sequence[Sequence[tuple[float, str, str]]]) -> None:
    """Names at the ends of the lines, or in a legend below the figure if they are too many or too long."""
    names = list(dict.fromkeys(text for some in ends for _, text, _ in some))
    if not many(len(names)) and max(map(len, names), default=0) <= SHORT_NAME:
        for axis, some in zip(axes, ends, strict=True):
            label_ends(axis, some)
        return
    lines = named_lines(axes)
    columns = max(1, 130 // (max(map(len, lines), default=0) + 8))
    figure.legend(lines.values(), lines, loc="outside lower left", ncols=columns, handlelength=3)


def named_lines(axes: Sequence[Axes]) -> dict[str, Any]:
    """Name -> its first line in some panels."""
    lines: dict[str, Any] = {}
    for axis in axes:
        for line, text in zip(*axis.get_legend_handles_labels(), strict=True):
            lines.setdefault(text, line)
    return lines


def images_axis(axis: Axes, count: int = 1) -> None:
    """Format x as the number of training images seen, 64k, 1.2M, in one of `count` panels."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_major_locator(MaxNLocator(3 if many(count) else 4))
    axis.set_xlim(left=0)
    axis.set_xlabel("images seen")


def log_if_wide(axis: Axes, numbers: Sequence[np.ndarray], ratio: float = 20.0) -> None:
    """Use a logarithmic y axis if all numbers are positive and the largest is over `ratio` times the smallest."""
    present = np.concatenate([np.ravel(n) for n in numbers]) if numbers else np.array([])
    present = present[np.isfinite(present)]
    if len(present) and present.min() > 0 and present.max() / present.min() > ratio:
        log_axis(axis)


def log_axis(axis: Axes) -> None:
    """Logarithmic y axis with ticks at 1, 2 and 5 if there is room, labelled without exponents where possible; in a
    range that may have less than two of these, with ticks at equal steps."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    spec = axis.get_subplotspec()
    height = cast("Figure", axis.get_figure(root=True)).get_figheight()
    inches = 0.75 * height / (spec.get_gridspec().nrows if spec else 1)
    there = 0 < low < high  # else nothing positive was drawn, such as values of bins without images
    roomy = there and 3 * math.log10(high / low) * LABEL_INCHES < inches
    if there and high / low < 5:
        axis.yaxis.set_major_locator(MaxNLocator(5))
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if roomy else (1.0,), numticks=8))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def timestep_axis(axis: Axes, first: float, last: float, label: str = "timestep t") -> None:
    """x from the first to the last timestep, logarithmic from 10 on."""
    axis.set_xscale("symlog", linthresh=10)
    axis.set_xlim(first, last)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel(label)


def log_snr_axis(axis: Axes, low: float, high: float) -> None:
    """x as ln SNR from `high` to `low`: in all figures noise grows to the right, as it does along t."""
    axis.set_xlim(high, low)
    axis.set_xlabel(LOG_SNR)


def picture_rows(axis: Axes, pictures: np.ndarray | Sequence[np.ndarray], names: Sequence[str]) -> None:
    """n rows of k pictures with white borders, (n,k,C,H,W) uint8 with C = 1 or 3, and the rows' names."""
    bordered = np.pad(pictures, ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)), constant_values=255)
    n, k, channels, height, width = bordered.shape
    canvas = bordered.transpose(0, 3, 1, 4, 2).reshape(n * height, k * width, channels)
    axis.imshow(canvas.repeat(3, axis=2) if channels == 1 else canvas, interpolation="nearest", aspect="equal")
    axis.set_yticks([height * (row + 0.5) for row in range(n)], names)
    axis.set_xticks([width * (column + 0.5) for column in range(k)], [str(column) for column in range(k)])
    axis.grid(False)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def label_ends(axis: Axes, ends: Sequence[tuple[float, str, str]], size: float = 9.5) -> None:
    """Write names beside the right edge at the height of the lines' ends, moved apart if they would overlap.

    `ends` has (y, text, colour) of each line; the limits of the axes are frozen; `size` is in points.
    """
    low, high = axis.get_ylim()
    axis.set_ylim(low, high)
    ends = [end for end in ends if math.isfinite(end[0])]
    to_axes = axis.transData + axis.transAxes.inverted()
    wanted = np.array([to_axes.transform((axis.get_xlim()[1], y))[1] for y, _, _ in ends])
    inches = 0.95 * axis.bbox.height / axis.figure.dpi  # approximate height after layout
    places = spread(wanted, size * 1.35 / 72 / inches, lowest=0.05)  # not among the tick labels below
    for (_, text, color), y, place in zip(ends, wanted, places, strict=True):
        arrow = {"arrowstyle": "-", "color": color, "linewidth": 0.8, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
        axis.annotate(
            text,
            xy=(1.0, y),
            xytext=(1.035, place),
            xycoords="axes fraction",
            color=color,
            size=size,
            va="center",
            annotation_clip=False,
            arrowprops=arrow,
        )


def spread(wanted: np.ndarray, gap: float, lowest: float = -math.inf) -> np.ndarray:
    """The places >= `lowest` nearest to the wanted ones (least squares), in the same order and at least `gap` apart.

    With y_i = place_i - i gap, in order of height, this is isotonic regression; its solution is clipped at the bound.
    """
    from scipy.optimize import isotonic_regression

    order = np.argsort(wanted, kind="stable")
    places, gaps = np.empty(len(wanted)), gap * np.arange(len(wanted))
    places[order] = np.maximum(isotonic_regression(wanted[order] - gaps).x, lowest) + gaps
    return places


def svg(figure: Figure) -> bytes:
    """The figure as an SVG file; inside `style` the same figure gives the same bytes."""
    return compact_svg(_saved(figure, "svg", {"Date": None, "Creator": None}).decode()).encode()


def png(figure: Figure) -> bytes:
    """The figure as a PNG file, for places that show no SVG; inside `style` the same figure gives the same bytes."""
    return _saved(figure, "png", {"Software": None})


def data_uri(figure: Figure) -> str:
    """The figure as an SVG inside a `data:` address."""
    return as_address(svg(figure))


def as_address(image: bytes) -> str:
    """An SVG file inside a `data:` address."""
    return "data:image/svg+xml;base64," + base64.b64encode(image).decode()


DECIMALS = 2  # of a point, a hundredth of which is invisible
# Groups that start a new line, so that a diff of two committed figures shows which part of the figure changed.
_BREAK = re.compile(r"(?=<g id=\"(?!text_|line2d_\d|[xy]tick_)|</svg>|<defs>|<svg)")


def compact_svg(text: str) -> str:
    """Matplotlib's SVG without metadata, with rounded coordinates and one line for each part of the figure.

    Comments are kept: glyphs are drawn as paths, so only the comments make their text searchable. Scales of glyphs
    keep their digits, because they are multiplied by numbers in the thousands.
    """
    head, _, body = text.partition("<svg")
    body = re.sub(r"<metadata>.*?</metadata>", "", "<svg" + body, flags=re.DOTALL)
    body = re.sub(r'<!--.*?-->|"[^"]*"', lambda found: _one_line(found[0]), body, flags=re.DOTALL)
    body = re.sub(r">\s+<", "><", body)
    declaration = head.partition("?>")[0] + "?>\n" if "?>" in head else ""
    return declaration + _BREAK.sub("\n", body).strip() + "\n"


def _one_line(value: str) -> str:
    """The value of an attribute; a comment stays as it is."""
    if value.startswith("<!--"):
        return value
    if value.startswith('"data:'):
        return re.sub(r"\s+", "", value)
    joined = re.sub(r"\s+", " ", value).replace(' "', '"').replace('" ', '"')
    return re.sub(r"(scale\([^)]*\))|(-?\d+\.\d+)", lambda match: match[1] or _rounded(match[2]), joined)


def _rounded(number: str) -> str:
    short = f"{float(number):.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short


def _saved(figure: Figure, form: str, metadata: dict[str, None]) -> bytes:
    """The file's content. A name with two dollar signs that is no formula is shown as it is, instead of ending it."""
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, format=form, dpi=RASTER, metadata=metadata)
    except ValueError:
        from matplotlib.text import Text

        texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and not _is_formula(text.get_text())]
        if not texts:
            raise
        for text in texts:
            text.set_parse_math(False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format=form, dpi=RASTER, metadata=metadata)
    return buffer.getvalue()


def _is_formula(text: str) -> bool:
    """Whether Matplotlib can set a text, which it takes for one with formulas if its dollar signs are in pairs."""
    from matplotlib.mathtext import MathTextParser

    try:
        for line in text.splitlines():
            if line.count("$") and line.count("$") % 2 == 0:
                MathTextParser("path").parse(line)
    except ValueError:
        return False
    return True
