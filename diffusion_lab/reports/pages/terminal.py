"""A table on a terminal: a name is never broken, and columns that do not fit are only on the page.

In the order in which room is missing: a number stands above its interval; the name of a row stands above its numbers;
the title of a column is broken between words, and abbreviated; the last columns are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from diffusion_lab.printable import make_console, one_line
from diffusion_lab.reports.comparison.cells import WIDTH, Cell, Comparison

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

GAP = 3  # characters between two columns
NEEDED = 3  # columns that are always shown: the name, how many runs, and the first number
INDENT = 2  # of numbers below a name
_BREAK = re.compile(r" (?=\[|\(n=1|\(\d|to |at the end|over training)")
_TO_BASELINE = re.compile(r"^(ratio|difference) to .+?( at the end| over training)?$")
_WORDS = re.compile(r" (?![\u2191\u2193])")  # an arrow stays beside its name

Lines = list[list[Cell]]


class Printer:
    """Tables and sentences on standard output, in the width of a terminal, elsewhere in `WIDTH` columns."""

    def __init__(self) -> None:
        self.console = make_console(width=None if sys.stdout.isatty() else WIDTH)

    def say(self, text: str = "", style: str = "", whole: bool = False) -> None:
        """A line that begins no other, whatever the names in it; `whole`: a command or a path, which can be copied."""
        from rich.text import Text

        self.console.print(Text(one_line(text), style=style), soft_wrap=whole or not self.console.is_terminal)

    def table(self, table: Comparison) -> list[str]:
        """Print a table; returns the titles of the columns that do not fit."""
        made, left_out = rich_table(table, self.console.width)
        self.console.print(made)
        return left_out

    def only_on_page(self, titles: Sequence[str], style: str = "dim") -> None:
        """Name the columns that did not fit."""
        if titles:
            self.say(f"Only on the page, because the terminal is too narrow: {', '.join(titles)}.", style)


def rich_table(table: Comparison, width: int) -> tuple[RenderableType, list[str]]:
    """The table in `width` characters, and the titles of the columns that do not fit."""
    table = _in_lines(table)
    for titles, lines in _forms(table):
        if _width(titles, lines) <= width:
            return _plain(titles, lines, table.left), []
    titles, lines = list(_narrow(table.titles)), _stacked(table.lines)
    while len(titles) > NEEDED and INDENT + _width(titles[1:], [line[1:] for line in lines]) > width:
        titles, lines = titles[:-1], [line[:-1] for line in lines]
    left_out = table.titles[len(titles) :]
    if _width(titles, lines) <= width:  # the name has room beside fewer columns
        return _plain(titles, lines, table.left), left_out
    return _below_names(titles, lines, table.left), left_out


def _in_lines(table: Comparison) -> Comparison:
    """The table with each text as it is printed, so that columns are as wide as they need to be."""
    lines = [[cell._replace(text=one_line(cell.text)) for cell in line] for line in table.lines]
    return table._replace(titles=[one_line(title) for title in table.titles], lines=lines)


def _forms(table: Comparison) -> Iterator[tuple[list[str], Lines]]:
    """The whole table: on one line; with intervals below; with titles abbreviated."""
    yield table.titles, table.lines
    stacked = _stacked(table.lines)
    yield [_BREAK.sub("\n", title) for title in table.titles], stacked
    yield list(_narrow(table.titles)), stacked


def _stacked(lines: Sequence[Sequence[Cell]]) -> Lines:
    """Numbers above their intervals; the first column is a name."""
    return [
        [cell._replace(text=_BREAK.sub("\n", cell.text)) if i else cell for i, cell in enumerate(line)]
        for line in lines
    ]


def _narrow(titles: Sequence[str]) -> Iterator[str]:
    """Titles broken between all words; the baseline is not named again, since its row says that it is it."""
    for i, title in enumerate(titles):
        brief = _BREAK.sub("\n", _TO_BASELINE.sub(r"\1\nto baseline\2", title))
        yield title if i == 0 else brief if brief != title else _WORDS.sub("\n", title)


def _plain(titles: Sequence[str], lines: Sequence[Sequence[Cell]], left: int) -> Table:
    made = _grid(titles, lines, left)
    for line in lines:
        made.add_row(*map(_text, line))
    return made


def _below_names(titles: Sequence[str], lines: Lines, left: int) -> RenderableType:
    """Each name on a line of its own, above its numbers."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    numbers = [line[1:] for line in lines]
    parts: list[RenderableType] = [Padding(_grid(titles[1:], numbers, left - 1), (0, 0, 0, INDENT))]
    for line in lines:
        below = _grid(titles[1:], numbers, left - 1, head=False)
        below.add_row(*map(_text, line[1:]))
        parts += [Text(line[0].text, style="bold", no_wrap=True, overflow="ignore"), Padding(below, (0, 0, 0, INDENT))]
    return Group(*parts)


def _grid(titles: Sequence[str], lines: Sequence[Sequence[Cell]], left: int, head: bool = True) -> Table:
    """An empty table whose columns are as wide as these lines need."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=head)
    for i, (title, width) in enumerate(zip(titles, _widths(titles, lines), strict=True)):
        justify = "left" if i < left else "right"
        made.add_column(Text(title), justify=justify, min_width=width, no_wrap=True, overflow="fold")
    return made


def _text(cell: Cell) -> Text:
    from rich.text import Text

    return Text(cell.text, style="bold" if cell.bold else "")


def _widths(titles: Sequence[str], lines: Sequence[Sequence[Cell]]) -> list[int]:
    columns = zip(titles, *([cell.text for cell in line] for line in lines), strict=True)
    return [max(len(part) for text in column for part in text.split("\n")) for column in columns]


def _width(titles: Sequence[str], lines: Sequence[Sequence[Cell]]) -> int:
    return sum(width + GAP for width in _widths(titles, lines))
