"""The table on a terminal: names are kept whole, and columns that do not fit are only on the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from diffusion_lab.reports.cells import Cell, Comparison

if TYPE_CHECKING:
    from rich.table import Table

GAP = 3  # characters between two columns
NEEDED = 6  # the first columns, up to the number of seeds, are always shown
_BREAK = re.compile(r" (?=\[|\(n=1|\(\d|p[=<]|for ±|to )")


def rich_table(table: Comparison, width: int) -> tuple[Table, list[str]]:
    """The table in `width` characters, and the titles of the columns that do not fit.

    If it is too wide, numbers are placed above their intervals, then the last columns are left out, and names are
    wrapped only if that is not enough.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    titles, lines = list(table.titles), [list(line) for line in table.lines]
    if _width(titles, lines) > width:
        titles = [_BREAK.sub("\n", title) for title in titles]
        lines = [
            [cell._replace(text=_BREAK.sub("\n", cell.text)) if i else cell for i, cell in enumerate(line)]
            for line in lines
        ]
    while _width(titles, lines) > width and len(titles) > NEEDED:
        titles, lines = titles[:-1], [line[:-1] for line in lines]
    roomy = _width(titles, lines) <= width
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, title in enumerate(titles):
        made.add_column(
            Text(title), justify="left" if i < table.left else "right", overflow="fold", no_wrap=roomy or i > 1
        )
    for line in lines:
        made.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in line))
    return made, table.titles[len(titles) :]


def _width(titles: Sequence[str], lines: Sequence[Sequence[Cell]]) -> int:
    columns = zip(titles, *([cell.text for cell in line] for line in lines), strict=True)
    return sum(max(len(part) for text in column for part in text.split("\n")) + GAP for column in columns)
