"""The pages of a table: Markdown, LaTeX, CSV and one self-contained HTML page, all of them functions of the runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.files import write_whole
from diffusion_lab.markup import markdown_text
from diffusion_lab.printable import one_line
from diffusion_lab.progress import duration
from diffusion_lab.reports.comparison.cells import Cell, Comparison
from diffusion_lab.reports.figures import Figure
from diffusion_lab.reports.pages.files import latex, markdown, tex
from diffusion_lab.reports.pages.html import environment
from diffusion_lab.tables.curves import DIFFERENCES, LEGEND, curves, data_of, differences, speed
from diffusion_lab.tables.results import EQUAL, FAILS, HOLDS, Results, table_csv
from diffusion_lab.tables.said import answer, sentences
from diffusion_lab.tables.table import Table
from diffusion_lab.tables.table_scale import TableScale
from diffusion_lab.tables.text import legend, tables
from diffusion_lab.tables.values import Gathered, per_seed_csv

PER_SEED = "per_seed.csv"
OF_RUNS = ("How much faster", "Curves", "Settings", "Command and versions")  # sections that need the runs
SECTIONS = (
    "What the paper claims, row by row",
    "How much faster",
    "Curves",
    "Settings",
    "What differs from the paper",
    "Not stated in the paper, or stated twice",
    "Names of the rows for --only",
    "Command and versions",
)

Settings = tuple[Mapping[str, str], Sequence[str], Sequence[Sequence[str]]]  # shared; titles and lines of the others


class TablePage(NamedTuple):
    """What the pages of a table show.

    Attributes:
        results, gathered, scale: the numbers and where they are from.
        settings: of the rows.
        commands: that made it.
        versions: library -> version, of the runs.
    """

    results: Results
    gathered: Gathered
    scale: TableScale
    settings: Settings
    commands: Sequence[str]
    versions: Mapping[str, Sequence[str]]

    @property
    def tables(self) -> dict[str, Comparison]:
        """Heading -> table of what was measured, or of what the paper has published."""
        return tables(self.results, self.gathered.missing)

    @property
    def speeds(self) -> dict[str, Comparison]:
        """Title of a column -> how much faster its rows are."""
        columns = self.results.table.columns
        found = {column.title: speed(self.results, column, self.gathered) for column in columns}
        return {title: one for title, one in found.items() if one is not None}


def write_pages(page: TablePage, folder: Path) -> list[Path]:
    """Write all files of a table into its folder; returns their paths."""
    first, drawn = differences(page.results), curves(page.results, page.gathered)
    texts = {
        "table.md": as_markdown(page, drawn),
        "table.tex": as_latex(page.tables, legend(page.results)),
        "table.csv": table_csv(page.results, {place: data_of(own[0]) for place, own in page.gathered.runs.items()}),
        PER_SEED: per_seed_csv(page.gathered.values.values),
        "page.html": as_html(page, first | drawn),
    }
    files = {name: text.encode() for name, text in texts.items()}
    files |= {name: figure.svg for name, figure in (first | drawn).items()}
    for name, content in files.items():
        write_whole(folder / name, content)
    return [folder / name for name in files]


def as_markdown(page: TablePage, drawn: Mapping[str, Figure]) -> str:
    """The table as a page of a repository, with the curves that were drawn."""
    sections = {"Settings": _settings_markdown(page.settings)}
    if page.speeds:
        several = len(page.speeds) > 1
        speeds = ((f"### {title}\n\n" if several else "") + markdown(one) for title, one in page.speeds.items())
        sections["How much faster"] = "\n".join([f"{LEGEND}\n", *speeds])
    if drawn:
        sections["Curves"] = "\n".join(_picture(name, figure) for name, figure in drawn.items())
    made = "".join(f"    {one_line(command)}\n" for command in page.commands)
    sections["Command and versions"] = f"{made}\n{markdown_text(_provenance(page))}\n"
    return markdown_of(page.results, page.gathered.missing, page.scale, sections)


def markdown_of(
    results: Results, missing: Mapping[tuple[str, str], str], scale: TableScale, of_runs: Mapping[str, str]
) -> str:
    """The page: the answer and its figure, the numbers, the claims one by one, then the rest.

    Args:
        results: the numbers.
        missing: (row, column) -> why it has no numbers.
        scale: of the runs.
        of_runs: text of the sections in `OF_RUNS`, which are functions of the runs and not of the numbers alone.
    """
    table = results.table
    pieces = [f"# {table.title}: {scale.name}\n", f"**{answer(results)}**\n"]
    pieces.append(f"The paper claims: {table.says} Here: {scale.says}.\n")
    pieces += [_picture(name, figure) for name, figure in differences(results).items()]
    pieces += [f"## {markdown_text(title)}\n\n{markdown(one)}" for title, one in tables(results, missing).items()]
    pieces.append(f"{legend(results)}.\n")
    sections = dict(of_runs)
    if results.outcomes:
        said = [
            f"- {text.replace(f': {word}', f': **{word}**', 1) if word in (HOLDS, FAILS, EQUAL) else text}"
            for word, text in sentences(results)
        ]
        sections["What the paper claims, row by row"] = "\n".join([*said, ""])
    for title, notes in notes_of(table, scale).items():
        sections[title] = "\n".join([*(f"- {sentence}" for sentence in notes), ""])
    pieces += [f"## {title}\n\n{sections[title]}" for title in SECTIONS if title in sections]
    return "\n".join(pieces)


def _picture(name: str, figure: Figure) -> str:
    return f"![{markdown_text(figure.title)}]({name})\n\n{markdown_text(figure.caption)}\n"


def notes_of(table: Table, scale: TableScale) -> dict[str, Sequence[str]]:
    """Title -> sentences: what differs from the paper, and what the paper leaves open."""
    notes = {
        "What differs from the paper": [*scale.differs, *table.differs] if scale.steps is not None else [],
        "Not stated in the paper, or stated twice": table.not_stated,
        "Names of the rows for --only": [f"{row.name}: {row.title}" for row in table.rows],
    }
    return {title: said for title, said in notes.items() if said}


def absent_rows(table: Table, scale: TableScale) -> dict[tuple[str, str], str]:
    """(row, column) -> why the row cannot be trained at a scale."""
    why = {row.name: row.absent[scale.name] for row in table.rows if row.absent.get(scale.name)}
    return {(name, column.name): said for name, said in why.items() for column in table.columns}


def _provenance(page: TablePage) -> str:
    """How many runs, how long and when; and of what versions."""
    runs = page.gathered.every
    days = sorted({str(run.info.get("started", ""))[:10] for run in runs} - {""})
    when = f", begun {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
    took = duration(sum(run.seconds or 0.0 for run in runs))
    versions = ", ".join(f"{library} {' and '.join(own)}" for library, own in page.versions.items())
    return f"{len(runs)} run{'s' * (len(runs) != 1)}, {took} in all with their evaluations{when}; {versions}"


def _settings_markdown(settings: Settings) -> str:
    shared, titles, lines = settings
    text = markdown_text(", ".join(f"{key} {value}" for key, value in shared.items()))
    cells = [[Cell(value) for value in line] for line in lines]
    return f"{text}\n" + (f"\n{markdown(Comparison([*titles], cells, '', [], left=len(titles)))}" if lines else "")


def as_latex(tables: Mapping[str, Comparison], legend: str) -> str:
    """One tabular for each table, with the legend."""
    pieces = []
    for title, one in tables.items():
        pieces += [rf"\subsubsection*{{{tex(title)}}}" + "\n", latex(one)]
    pieces.append(rf"\par\noindent {tex(legend)}." + "\n")
    return "\n".join(pieces)


def as_html(page: TablePage, drawn: Mapping[str, Figure]) -> str:
    """The page for a browser; it loads nothing."""
    templates = environment(Path(__file__).parent)
    return templates.get_template("page_of_table.html.j2").render(**_content(page, drawn))


def _content(page: TablePage, drawn: Mapping[str, Figure]) -> dict[str, Any]:
    table, words = page.results.table, legend(page.results)
    shared, titles, lines = page.settings
    return {
        "title": f"{table.title}: {page.scale.name}",
        "says": table.says,
        "here": page.scale.says,
        "answer": answer(page.results),
        "verdicts": [(re.sub(r"\W+", "-", word), text) for word, text in sentences(page.results)],
        "tables": page.tables,
        "speeds": [(title if len(page.speeds) > 1 else "", one) for title, one in page.speeds.items()],
        "speed_legend": LEGEND,
        "legend": words,
        "first": drawn.get(DIFFERENCES),
        "figures": [figure for name, figure in drawn.items() if name != DIFFERENCES],
        "shared": shared,
        "setting_titles": titles,
        "setting_lines": lines,
        "notes": notes_of(table, page.scale),
        "commands": page.commands,
        "versions": _provenance(page),
        "markdown": "\n".join(markdown(one) for one in page.tables.values()),
        "latex": as_latex(page.tables, words),
    }
