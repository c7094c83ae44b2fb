"""The comparison in files: as Markdown or LaTeX, to be committed with a study, and the values of each seed as CSV.

A table has its answer, its legend and the commands to reproduce it. It is a function of the runs and the command: it
has no date, and paths are relative. Beside `digits.md` is `digits.per_seed.csv`, from which its intervals can be
recomputed:

    section,row,run,seed,metric,step,value,protocol

One line per finished run and value; the first row of a section that has the metric is its baseline. `step` is that of
the value, and empty for a mean and for facts of a run. `protocol` is JSON, and empty for values that are not
evaluations. Values are written with all digits. `METRIC over training` is a run's
mean over the snapshots that all runs of the section have, geometric if the table has ratios, and `METRIC (diverged)`
the value of a run that the table only counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from diffusion_lab.files import write_whole
from diffusion_lab.intervals import ESTIMANDS
from diffusion_lab.markup import csv_text, markdown_cell, markdown_text
from diffusion_lab.printable import one_line
from diffusion_lab.reports.comparison.cells import Cell, Comparison
from diffusion_lab.reports.comparison.metrics import VAL_LOSS
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.comparison.sections import Section
from diffusion_lab.runs.run import Run, RunFolder, status_words

SUFFIXES = (".md", ".tex")
COLUMNS = ("section", "row", "run", "seed", "metric", "step", "value", "protocol")
_ABSOLUTE = re.compile(r"""(?:^|(?<=[\s=,'"(\[]))/[^\s,'"\])}]+""")


def save(path: Path, content: bytes, option: str) -> None:
    """Write a file atomically, with the folders that are missing; `option` is the command's option with the path, of
    which a ValueError says that it cannot be written to."""
    try:
        write_whole(path, content)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"{option}={path} must be a file that can be written ({reason}); use another path for --{option}"
        ) from error


def check_suffix(path: str | Path) -> Path:
    """The path; ValueError if its suffix is not one of `SUFFIXES`."""
    if Path(path).suffix not in SUFFIXES:
        raise ValueError(f"table={path} must end in {' or '.join(SUFFIXES)}; use e.g. --table table.md")
    return Path(path)


def write_table(path: str | Path, folder: RunFolder, tables: Mapping[str, Comparison], command: str) -> Path:
    """Write the tables with their legends and commands, in one atomic replacement; with the titles of their sections if
    there are several.

    Raises:
        ValueError: the suffix is unknown, or the path cannot be written to.
    """
    path = check_suffix(path)
    note = f"not finished: {status_words(folder.unfinished)}" if folder.unfinished else ""
    commands = [portable(text) for text in [*training_commands(folder), command]]
    pieces = (_tex_pieces if path.suffix == ".tex" else _markdown_pieces)(
        {title: _portable(table) for title, table in tables.items()}, note, commands
    )
    save(path, "\n".join(pieces).encode(), "table")
    return path


def _markdown_pieces(tables: Mapping[str, Comparison], note: str, commands: Sequence[str]) -> Iterator[str]:
    for title, table in tables.items():
        if len(tables) > 1:
            yield f"### {markdown_text(title)}\n"
        yield f"{markdown(table)}\n{markdown_text(table.answer)}\n\n{table.legend}\n"
    if note:
        yield f"{note}\n"
    yield "".join(f"    {one_line(command)}\n" for command in commands)


def _tex_pieces(tables: Mapping[str, Comparison], note: str, commands: Sequence[str]) -> Iterator[str]:
    """Commands may break at commas; `-{}-` in them, because two hyphens would become a dash."""
    for title, table in tables.items():
        if len(tables) > 1:
            yield rf"\subsubsection*{{{tex(title)}}}" + "\n"
        yield f"{latex(table)}\n\\par\\noindent {tex(table.answer)}\n\n\\par\\noindent {tex(table.legend)}\n"
    if note:
        yield rf"\par\noindent {tex(note)}" + "\n"
    texts = [tex(command).replace("--", "-{}-").replace(",", r",\allowbreak{}") for command in commands]
    yield "".join(rf"\par\noindent\texttt{{{text}}}" + "\n" for text in texts)


def _portable(table: Comparison) -> Comparison:
    lines = [[Cell(portable(cell.text), cell.bold) for cell in line] for line in table.lines]
    titles, notes = ([portable(text) for text in texts] for texts in (table.titles, table.notes))
    texts = {"legend": portable(table.legend), "answer": portable(table.answer)}
    return table._replace(titles=titles, lines=lines, notes=notes, **texts)


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


def markdown(table: Comparison) -> str:
    """A pipe table, followed by the notes."""
    titles, lines = table.titles, table.lines
    texts = [
        [markdown_cell(title) for title in titles],
        ["---"] * table.left + ["---:"] * (len(titles) - table.left),
    ]
    for line in lines:
        escaped = [cell._replace(text=markdown_cell(cell.text)) for cell in line]
        texts.append([f"**{cell.text}**" if cell.bold else cell.text for cell in escaped])
    notes = "".join(f"\n{markdown_text(note)}\n" for note in table.notes)
    return "\n".join("| " + " | ".join(text) + " |" for text in texts) + "\n" + notes


def latex(table: Comparison) -> str:
    """A tabular with booktabs rules, followed by the notes."""
    titles, lines = table.titles, table.lines
    body = [
        " & ".join(rf"\textbf{{{tex(cell.text)}}}" if cell.bold else tex(cell.text) for cell in line) for line in lines
    ]
    rows = "".join(rf"{line} \\" + "\n" for line in body)
    columns = "l" * table.left + "r" * (len(titles) - table.left)
    head = " & ".join(tex(title) for title in titles)
    return (
        rf"\begin{{tabular}}{{{columns}}}" + "\n"
        r"\toprule" + "\n" + rf"{head} \\" + "\n" + r"\midrule" + "\n" + rows + r"\bottomrule" + "\n"
        r"\end{tabular}" + "\n"
    ) + "".join(f"\n\\par\\noindent {tex(note)}\n" for note in table.notes)


def tex(text: str) -> str:
    """`text` with LaTeX's special characters escaped."""
    special = {"\\": r"\textbackslash{}", "↓": r"$\downarrow$", "↑": r"$\uparrow$", "\N{MINUS SIGN}": "$-$"}
    special |= {c: "\\" + c for c in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {"<": "$<$", ">": "$>$", "|": "$|$"}  # other characters in LaTeX's default font encoding
    return "".join(special.get(character, character) for character in one_line(text))


def path_beside(table: str | Path) -> Path:
    """digits.md -> digits.per_seed.csv"""
    return Path(table).with_suffix(".per_seed.csv")


def write_per_seed(table: str | Path, sections: Sequence[Section]) -> Path:
    """Write the file beside the table, in one atomic replacement; ValueError if the path cannot be written to."""
    path = path_beside(table)
    lines = [(section.title, *line) for section in sections for line in _section_lines(section)]
    save(path, csv_text(COLUMNS, lines).encode(), "table")
    return path


def _section_lines(section: Section) -> Iterator[tuple[object, ...]]:
    evidence = tabulate(section.groups, section.metric, section.question).evidence
    training = evidence.training or [{} for _ in section.groups]
    for group, means, diverged in zip(section.groups, training, evidence.diverged, strict=True):
        for run in group.done:
            for name, value in _values(run, section.metric).items():
                gone = name == section.metric and run.seed in diverged
                at, shown = run.step_of_last(name), f"{name} (diverged)" if gone else name
                yield group.label, *_line(run, shown, at, value, run.protocol(name))
            if run.seed in means:
                yield group.label, *_line(run, f"{section.metric} {ESTIMANDS['training']}", None, means[run.seed], {})


def _values(run: Run, metric: str) -> dict[str, float]:
    """What a finished run has: its metrics, the one of the table first, and its rate and time."""
    found = {name: run.last(name) for name in dict.fromkeys([metric, *run.metric_names, VAL_LOSS])}
    found |= {"images_per_second": run.images_per_second, "seconds": run.seconds}
    return {name: value for name, value in found.items() if value is not None}


def _line(run: Run, name: str, at: int | None, value: float, protocol: Mapping[str, object]) -> tuple[object, ...]:
    text = json.dumps(protocol, sort_keys=True, separators=(",", ":")) if protocol else ""
    seed, step = ("" if number is None else number for number in (run.seed, at))
    return run.name, seed, name, step, repr(value), text
