"""The same picture in fewer bytes and lines: Matplotlib writes a line for each corner of a path, with six decimals."""

from __future__ import annotations

import re

DECIMALS = 2  # of a point, a hundredth of which nobody sees
# Groups that begin a line: a difference between two committed figures then says which part of the figure changed.
_BREAK = re.compile(r"(?=<g id=\"(?!text_|line2d_\d|[xy]tick_)|</svg>|<defs>|<svg)")


def compact_svg(text: str) -> str:
    """An SVG of Matplotlib's without metadata, coordinates rounded, one line for each part of the figure.

    Comments stay: glyphs are drawn as paths, and the comments are where their text can be searched. Scales of glyphs
    keep their digits, because they are multiplied by numbers of thousands.
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
    return re.sub(r"(scale\([^)]*\))|(-?\d+\.\d+)", lambda found: found[1] or _rounded(found[2]), joined)


def _rounded(number: str) -> str:
    short = f"{float(number):.{DECIMALS}f}".rstrip("0").rstrip(".")
    return "0" if short == "-0" else short
