"""Smaller SVG files of the same picture: Matplotlib writes a line for each corner of a path, with six decimals."""

from __future__ import annotations

import re

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
    body = re.sub(r'"[^"]*"', lambda value: _one_line(value[0]), body)
    body = re.sub(r">\s+<", "><", body)
    declaration = head.partition("?>")[0] + "?>\n" if "?>" in head else ""
    return declaration + _BREAK.sub("\n", body).strip() + "\n"


def _one_line(value: str) -> str:
    if value.startswith('"data:'):
        return re.sub(r"\s+", "", value)
    joined = re.sub(r"\s+", " ", value).replace(' "', '"').replace('" ', '"')
    return re.sub(r"(scale\([^)]*\))|(-?\d+\.\d+)", lambda match: match[1] or _rounded(match[2]), joined)


def _rounded(number: str) -> str:
    short = f"{float(number):.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short
