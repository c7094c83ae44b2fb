"""The comparison as a piece of a Markdown or LaTeX document, to be committed beside a study.

The table, what its numbers are, and the commands that lead to it. It is a function of the runs and of the command:
no date, and paths as a reader elsewhere would type them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from diffusion_lab.reports.cells import Cell, Comparison, latex, markdown, tex
from diffusion_lab.reports.files import replace
from diffusion_lab.reports.runs import RunFolder
from diffusion_lab.reports.tables import status_words

SUFFIXES = (".md", ".tex")
_ABSOLUTE = re.compile(r"""(?:^|(?<=[\s=,'"(\[]))/[^\s,'"\])}]+""")


def check_suffix(path: str | Path) -> Path:
    """The path.

    Raises:
        ValueError: its suffix is not one of `SUFFIXES`.
    """
    if Path(path).suffix not in SUFFIXES:
        raise ValueError(f"table={path} must end in {' or '.join(SUFFIXES)}; use e.g. --table table.md")
    return Path(path)


def write_table(path: str | Path, folder: RunFolder, table: Comparison, command: str) -> Path:
    """Write the fragment, in one atomic replacement; `command` is that of the report.

    Raises:
        ValueError: the suffix is unknown, or the place cannot be written to.
    """
    path = check_suffix(path)
    lines = [[Cell(portable(cell.text), cell.bold) for cell in line] for line in table.lines]
    legend = table.legend
    if folder.unfinished:
        legend += f"; not finished: {status_words(folder.unfinished)}"
    commands = [portable(text) for text in [*training_commands(folder), command]]
    write = _tex_fragment if path.suffix == ".tex" else _markdown_fragment
    replace(path, write(table.titles, lines, legend, commands).encode(), "table")
    return path


def training_commands(folder: RunFolder) -> list[str]:
    """Those of the sweeps, then those of the runs outside of them, each once."""
    single = [run.command for run in folder.runs if run.folder.parent not in folder.sweeps]
    return list(dict.fromkeys([*folder.commands, *single]))


def portable(text: str) -> str:
    """Absolute paths as seen from the current folder, or by their last part where they lie outside of it."""

    def shorten(found: re.Match[str]) -> str:
        path = Path(found[0])
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name or "."

    return _ABSOLUTE.sub(shorten, text)


def _markdown_fragment(titles: Sequence[str], lines: Sequence[Sequence[Cell]], legend: str, commands: list[str]) -> str:
    block = "".join(f"    {command}\n" for command in commands)
    return f"{markdown(titles, lines)}\n{legend}\n\n{block}"


def _tex_fragment(titles: Sequence[str], lines: Sequence[Sequence[Cell]], legend: str, commands: list[str]) -> str:
    """Commands as text that may break at commas; `-{}-`, because two hyphens would become a dash."""
    said = [tex(command).replace("--", "-{}-").replace(",", r",\allowbreak{}") for command in commands]
    block = "".join(rf"\par\noindent\texttt{{{text}}}" + "\n" for text in said)
    return f"{latex(titles, lines)}\n\\par\\noindent {tex(legend)}\n{block}"
