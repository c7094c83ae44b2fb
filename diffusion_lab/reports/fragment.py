"""The comparison as a fragment of a Markdown or LaTeX document, to be committed with a study.

It has the table, its legend and the commands to reproduce it. It is a function of the runs and the command: it has no
date, and paths are relative.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from diffusion_lab.markup import markdown_text
from diffusion_lab.printable import one_line
from diffusion_lab.reports.cells import Cell, Comparison, latex, markdown, tex
from diffusion_lab.reports.saving import save
from diffusion_lab.reports.tables import status_words
from diffusion_lab.runs.run import RunFolder

SUFFIXES = (".md", ".tex")
_ABSOLUTE = re.compile(r"""(?:^|(?<=[\s=,'"(\[]))/[^\s,'"\])}]+""")


def check_suffix(path: str | Path) -> Path:
    """The path, if its suffix is allowed.

    Raises:
        ValueError: its suffix is not one of `SUFFIXES`.
    """
    if Path(path).suffix not in SUFFIXES:
        raise ValueError(f"table={path} must end in {' or '.join(SUFFIXES)}; use e.g. --table table.md")
    return Path(path)


def write_table(path: str | Path, folder: RunFolder, tables: Mapping[str, Comparison], command: str) -> Path:
    """Write the fragment, in one atomic replacement.

    Args:
        path: path with one of `SUFFIXES`.
        folder: the runs.
        tables: title of a section -> its table; titles are written if there are several.
        command: the command of the report.

    Raises:
        ValueError: the suffix is unknown, or the path cannot be written to.
    """
    path = check_suffix(path)
    latex = path.suffix == ".tex"
    pieces = []
    for title, table in tables.items():
        if len(tables) > 1:
            pieces.append(rf"\subsubsection*{{{tex(title)}}}" + "\n" if latex else f"### {markdown_text(title)}\n")
        pieces.append((_tex_table if latex else _markdown_table)(_portable(table)))
    if folder.unfinished:
        note = f"not finished: {status_words(folder.unfinished)}"
        pieces.append(rf"\par\noindent {tex(note)}" + "\n" if latex else f"{note}\n")
    commands = [portable(text) for text in [*training_commands(folder), command]]
    pieces.append((_tex_commands if latex else _markdown_commands)(commands))
    save(path, "\n".join(pieces).encode(), "table")
    return path


def _portable(table: Comparison) -> Comparison:
    lines = [[Cell(portable(cell.text), cell.bold) for cell in line] for line in table.lines]
    return table._replace(lines=lines, notes=[portable(note) for note in table.notes])


def training_commands(folder: RunFolder) -> list[str]:
    """The commands of the sweeps, then those of single runs, without duplicates."""
    single = [run.command for run in folder.runs if run.folder.parent not in folder.sweeps]
    return list(dict.fromkeys([*folder.commands, *single]))


def portable(text: str) -> str:
    """`text` with absolute paths relative to the current folder, or reduced to their last part if outside of it."""

    def shorten(match: re.Match[str]) -> str:
        path = Path(match[0])
        return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name or "."

    return _ABSOLUTE.sub(shorten, text)


def _markdown_table(table: Comparison) -> str:
    return f"{markdown(table)}\n{table.legend}\n"


def _markdown_commands(commands: list[str]) -> str:
    return "".join(f"    {one_line(command)}\n" for command in commands)


def _tex_table(table: Comparison) -> str:
    return f"{latex(table)}\n\\par\\noindent {tex(table.legend)}\n"


def _tex_commands(commands: list[str]) -> str:
    """Commands as text that may break at commas; `-{}-`, because two hyphens would become a dash."""
    texts = [tex(command).replace("--", "-{}-").replace(",", r",\allowbreak{}") for command in commands]
    return "".join(rf"\par\noindent\texttt{{{text}}}" + "\n" for text in texts)
