"""The pages of a table: Markdown, LaTeX, CSV and one self-contained HTML page, all of them functions of the runs."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.files import write_whole
from diffusion_lab.markup import markdown_cell, markdown_text
from diffusion_lab.printable import one_line
from diffusion_lab.reports.comparison.cells import Comparison, duration
from diffusion_lab.reports.figures import Figure
from diffusion_lab.reports.pages.files import latex, markdown, tex
from diffusion_lab.reports.pages.html import environment
from diffusion_lab.tables.curves import LEGEND, curves, data_of, speed
from diffusion_lab.tables.results import FAILS, HOLDS, Results, table_csv
from diffusion_lab.tables.scale import Scale
from diffusion_lab.tables.text import comparisons, sentences, summary
from diffusion_lab.tables.values import Gathered, per_seed_csv

PER_SEED = "per_seed.csv"

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
    scale: Scale
    settings: Settings
    commands: Sequence[str]
    versions: Mapping[str, Sequence[str]]

    @property
    def tables(self) -> dict[str, Comparison]:
        """Title of a column -> its table."""
        return comparisons(self.results, self.gathered.missing)

    @property
    def speeds(self) -> dict[str, Comparison]:
        """Title of a column -> how much faster its rows are."""
        table = self.results.table
        found = {column.title: speed(table, column, self.gathered) for column in table.columns}
        return {title: one for title, one in found.items() if one is not None}

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """(outcome, sentence)."""
        return sentences(self.results)

    @property
    def summary(self) -> str:
        """How many of the paper's statements hold here."""
        return summary(self.results)


def write_pages(page: TablePage, folder: Path) -> list[Path]:
    """Write all files of a table into its folder; returns their paths."""
    drawn = curves(page.results, page.gathered)
    texts = {
        "table.md": as_markdown(page, drawn),
        "table.tex": as_latex(page),
        "table.csv": table_csv(page.results, {place: data_of(own[0]) for place, own in page.gathered.runs.items()}),
        PER_SEED: per_seed_csv(page.gathered.values.values),
        "page.html": as_html(page, drawn),
    }
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    paths = [folder / name for name in texts]
    for name, figure in drawn.items():
        write_whole(folder / name, base64.b64decode(figure.image.partition("base64,")[2]))
        paths.append(folder / name)
    return paths


def as_markdown(page: TablePage, drawn: Mapping[str, Figure]) -> str:
    """The table as a page of a repository."""
    table = page.results.table
    pieces = [f"# {table.title}: {page.scale.name}\n", f"{table.says}\n", f"Here: {page.scale.says}.\n"]
    for title, one in page.tables.items():
        pieces.append((f"## {title}\n\n" if len(table.columns) > 1 else "") + markdown(one))
    pieces.append(f"{next(iter(page.tables.values())).legend}.\n")
    if page.verdicts:
        lines = [f"- {_bold_outcome(word, text)}" for word, text in page.verdicts]
        pieces.append(
            "\n".join(["## What it says of the paper\n", *([page.summary, ""] if page.summary else []), *lines, ""])
        )
    if page.speeds:
        pieces.append(f"## How much faster\n\n{LEGEND}\n")
        pieces += [
            (f"### {title}\n\n" if len(page.speeds) > 1 else "") + markdown(one) for title, one in page.speeds.items()
        ]
    for name, figure in drawn.items():
        pieces.append(f"![{markdown_text(figure.title)}]({name})\n\n{markdown_text(figure.caption)}\n")
    pieces.append(_settings_markdown(page.settings))
    for title, said in notes_of(page).items():
        pieces.append("\n".join([f"## {title}\n", *(f"- {sentence}" for sentence in said), ""]))
    made = "".join(f"    {one_line(command)}\n" for command in page.commands)
    pieces.append(f"## Command and versions\n\n{made}\n{markdown_text(_provenance(page))}\n")
    return "\n".join(pieces)


def notes_of(page: TablePage) -> dict[str, Sequence[str]]:
    """Title -> sentences: what differs from the paper, and what the paper leaves open."""
    table, scaled = page.results.table, page.scale.steps is not None
    notes = {
        "What differs from the paper": [*page.scale.differs, *table.differs] if scaled else [],
        "Not stated in the paper, or stated twice": table.not_stated,
        "Rows, as --only takes them": [f"{row.name}: {row.title}" for row in table.rows],
    }
    return {title: said for title, said in notes.items() if said}


def _bold_outcome(word: str, text: str) -> str:
    return text.replace(f": {word}", f": **{word}**", 1) if word in (HOLDS, FAILS) else text


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
    pieces = [f"## Settings\n\n{text}\n"]
    if lines:
        rows = [[markdown_cell(text) for text in row] for row in (titles, ["---"] * len(titles), *lines)]
        pieces.append("\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n")
    return "\n".join(pieces)


def as_latex(page: TablePage) -> str:
    """One tabular for each column, with the legend."""
    pieces = []
    for title, one in page.tables.items():
        if len(page.tables) > 1:
            pieces.append(rf"\subsubsection*{{{tex(title)}}}" + "\n")
        pieces.append(latex(one))
    pieces.append(rf"\par\noindent {tex(next(iter(page.tables.values())).legend)}." + "\n")
    return "\n".join(pieces)


def as_html(page: TablePage, drawn: Mapping[str, Figure]) -> str:
    """The page for a browser; it loads nothing."""
    here = Path(__file__).parent
    templates = environment(here, here.parent / "reports")
    return templates.get_template("page_of_table.html.j2").render(**_content(page, drawn))


def _content(page: TablePage, drawn: Mapping[str, Figure]) -> dict[str, Any]:
    tables, table = page.tables, page.results.table
    shared, titles, lines = page.settings
    return {
        "title": f"{table.title}: {page.scale.name}",
        "says": table.says,
        "here": page.scale.says,
        "summary": page.summary,
        "verdicts": [(re.sub(r"\W+", "-", word), text) for word, text in page.verdicts],
        "tables": [(title if len(tables) > 1 else "", one) for title, one in tables.items()],
        "speeds": [(title if len(tables) > 1 else "", one) for title, one in page.speeds.items()],
        "speed_legend": LEGEND,
        "legend": next(iter(tables.values())).legend,
        "figures": list(drawn.values()),
        "shared": shared,
        "setting_titles": titles,
        "setting_lines": lines,
        "notes": notes_of(page),
        "commands": page.commands,
        "versions": _provenance(page),
        "markdown": "\n".join(markdown(one) for one in tables.values()),
        "latex": as_latex(page),
    }
