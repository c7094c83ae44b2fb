"""Writes the cells of the pages in `experiments/` that can be computed, and says which pages are stale.

    python -m experiments.cells            write them (`make pages`)
    python -m experiments.cells --check    name the stale pages; exit code 1 if there are any

A block begins with a line `<!-- cells: KIND ARGUMENT -->` and ends with `<!-- end -->`; between them stands a Markdown
table of which the last cells are written, and the first ones say what for:

    gpu_hours            | text | `experiment` | GPU hours |  as `dry_run=true precision=bf16-mixed` prints them
    pairs FILE METRIC    | row / row | ratio | interval |     paired by seed, from a FILE of `report --table`; from a
                                                    paper's per_seed.csv over training, with a third word, `end`, there
    judged METRIC [FILE] | row | n | mean | ratio | interval | verdict | seeds | val loss | ..    of PAGE.per_seed.csv,
                                       or of FILE beside the page; all rows decided together against the first
    published PAPER/TABLE   the whole table: a paper's numbers, from conf/table
    reproduced PAPER/TABLE SCALE    the whole text: answer, figure and a verdict for each row, from
                                    PAPER/results/SCALE/TABLE/per_seed.csv
    part MODULE PART ..     the whole text: a part of a study's page, which the module here has in its PARTS
    archived                the whole table: what `archive/curves.npz` has of each study
    evidence QUESTION       the whole table: what an answer of answers.md rests on (`evidence.py`)
    along STUDY/FILE KEY METRIC     the whole table: ratios at each value of the key, trend and crossings, from
                                    FILE_VALUE.per_seed.csv
    means STUDY/FILE METRIC         the whole table: mean of each row at each value of the key of these files
    rates STUDY/FILE METRIC TITLE   the whole table: geometric mean of each learning rate at each value of the key

The results of papers' tables, PAPER/results/SCALE/TABLE, are functions of per_seed.csv and conf/table, but for the
sections of table.md that need the runs and the data sets in table.csv, which stay as they are.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.study_along import along, means, rates
from experiments.study_cells import judged, pairs

if TYPE_CHECKING:
    from diffusion_lab.tables.results import Results

FOLDER = Path(__file__).resolve().parent
_BLOCK = re.compile(r"(<!-- cells: (\S+)([^>]*?) -->\n\n)(.*?)\n?<!-- end -->", re.DOTALL)
_END = "\n<!-- end -->"


def pages() -> list[Path]:
    """All that have a block."""
    return [path for path in sorted(FOLDER.glob("**/*.md")) if _BLOCK.search(path.read_text(encoding="utf-8"))]


def written(page: Path) -> str:
    """The page's text with its cells as they are now."""

    def block(match: re.Match[str]) -> str:
        arguments = match[3].split()
        if match[2] in WHOLE:
            return match[1] + WHOLE[match[2]](*arguments) + "\n" + _END
        fill = KINDS[match[2]]
        head, rule, *rows = match[4].strip().split("\n")
        return match[1] + "\n".join([head, rule, *(fill(page, row, *arguments) for row in rows)]) + "\n" + _END

    return _BLOCK.sub(block, page.read_text(encoding="utf-8"))


def gpu_hours(page: Path, row: str) -> str:
    """A row with the hours of the experiment that it names."""
    text, name, _ = _split(row)
    return f"| {text} | {name} | {_three_digits(hours_of(name.strip('`')))} |"


def hours_of(experiment: str) -> float:
    """GPU hours of all jobs of an experiment's sweep on its `cost.device`."""
    from diffusion_lab.cli.cost.cost import estimate_gpu_seconds

    return sum(map(estimate_gpu_seconds, _jobs(experiment))) / 3600


def _jobs(experiment: str) -> Iterator[Any]:
    """The configurations of the sweep."""
    from diffusion_lab.cli.config import compose_train
    from diffusion_lab.cli.sweep_jobs import jobs_of

    first = [f"experiment={experiment}", "precision=bf16-mixed"]
    folder = Path("runs") / "dry"
    sweeper = compose_train(first, folder).hydra.sweeper
    for words in jobs_of(sweeper.get("products") or [], sweeper.params):
        yield compose_train([*first, *words], folder)


def published(name: str) -> str:
    """The numbers that a paper has published, a line for each row."""
    from diffusion_lab.cli.table_files import conf_folders, load_table
    from diffusion_lab.tables.table import cell_titles
    from diffusion_lab.tables.text import published_number

    table = load_table(name, conf_folders(None))
    several = len(table.columns) > 1
    titles = [f"{c.title} {cell}" if several else cell for c in table.columns for cell in cell_titles(c)]
    lines = [[table.title, *titles], ["---"] + ["---:"] * len(titles)]
    for row in (row for row in table.rows if row.published):
        numbers = [row.published.get(column.name, (None,) * len(column.at)) for column in table.columns]
        lines.append([row.title, *("" if n is None else published_number(table, n) for own in numbers for n in own)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def archived() -> str:
    """What the archive has of each study: rows, most seeds of a row, metrics, curves, and most values of one."""
    from experiments.archive import Curve, curves

    studies: dict[str, list[Curve]] = {}
    for curve in curves():
        studies.setdefault(curve.study, []).append(curve)
    lines = ["| study | rows | seeds | metrics | curves | values of a curve | latents |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for study, own in studies.items():
        rows: dict[tuple[str, str], set[int]] = {}
        for curve in own:
            rows.setdefault((curve.table, curve.row), set()).add(curve.seed)
        counts = (len(rows), max(map(len, rows.values())), len({curve.metric for curve in own}), len(own))
        most, latents = max(len(curve.steps) for curve in own), ", ".join(sorted({c.latents for c in own} - {""}))
        lines.append(f"| {study} | {' | '.join(f'{n:,}' for n in (*counts, most))} | {latents} |")
    return "\n".join(lines)


def reproduced(name: str, scale: str) -> str:
    """The answer, its figure, and what a paper claims of each row of a table beside what was measured at a scale."""
    from diffusion_lab.reports.comparison.cells import Cell, Comparison
    from diffusion_lab.reports.pages.files import markdown
    from diffusion_lab.tables.curves import DIFFERENCES
    from diffusion_lab.tables.said import answer, said_of, when_words
    from diffusion_lab.tables.table import reference_title
    from diffusion_lab.tables.text import legend

    results = results_of(name, scale)
    place, table = f"results/{scale}/{name.partition('/')[2]}", results.table
    references = [reference_title(table, outcome.cell.column) for outcome in results.outcomes]
    to = f" to {references[0]}" if len(set(references)) == 1 else ""
    when, beside = (
        next((when_words(results, cell) for cell in found if cell), "")
        for found in zip(*((one.cell, one.beside) for one in results.outcomes), strict=True)
    )
    titles = ["row", "baseline", "the paper claims"]
    titles += [f"{whose} {table.unit}{when}" for whose in ("the paper's", "its baseline's")]
    titles += [f"{results.scale}{to} here{when}, {results.values.quantity}", "95 % interval", "verdict"]
    titles += ["seeds to decide", f"{results.scale}{beside}", "95 % interval"]
    lines = [
        (said.where, "" if to else reference, *said[1:])
        for said, reference in zip((said_of(results, one) for one in results.outcomes), references, strict=True)
    ]
    used = [k for k in range(len(titles)) if any(line[k] for line in lines)]
    decided = range(titles.index("verdict") - 2, titles.index("verdict") + 1)
    cells = [
        [Cell(line[k], one.compared.decided and k in decided) for k in used]
        for line, one in zip(lines, results.outcomes, strict=True)
    ]
    shown = markdown(Comparison([titles[k] for k in used], cells, "", [], left=sum(k < 3 for k in used)))
    said = f"**{answer(results)}** [All numbers of {table.title} at scale {scale}]({place}/table.md)."
    meaning = [part for part in legend(results).split("; ")[1:] if "common scale" not in part]
    picture = f"![{table.title}: {results.scale} to the baseline]({place}/{DIFFERENCES})"
    end = decided_at_the_end(results)
    return f"{said}\n\n{picture}\n\n{shown}\n{'; '.join(meaning)[:1].upper()}{'; '.join(meaning)[1:]}.{end}"


def decided_at_the_end(results: Results) -> str:
    """How many claims of a table that is decided over training the values at the last step alone would decide."""
    from diffusion_lab.tables import Values, summarise

    if results.table.estimand == "end":
        return ""
    values = Values(replace(results.table, estimand="end"), results.values.values)
    words = [one.measured for one in summarise(values, results.better, results.scale).outcomes if one.claimed]
    decided = sum(map(bool, words))
    return f" The values at the last step alone decide {decided or 'none'} of the {len(words)} claims." * bool(words)


def result_files(folder: Path, figures: bool = True) -> dict[str, str]:
    """Name -> text of what a table's folder of results has beside its values; its figures take most of the time."""
    from diffusion_lab.cli.table_files import conf_folders, load_scale
    from diffusion_lab.tables.curves import differences
    from diffusion_lab.tables.page import OF_RUNS, absent_rows, as_latex, markdown_of
    from diffusion_lab.tables.text import legend, tables

    paper, _, name, table = folder.relative_to(FOLDER).parts
    results, scale = results_of(f"{paper}/{table}", name), load_scale(name, conf_folders(None))
    missing = absent_rows(results.table, scale)
    parts = re.split(r"^## (.*)\n\n", (folder / "table.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    kept = {
        title: f"{text.rstrip()}\n" for title, text in zip(parts[::2], parts[1::2], strict=True) if title in OF_RUNS
    }
    texts = {"table.md": markdown_of(results, missing, scale, kept), "table.csv": _table_csv(folder, results)}
    texts["table.tex"] = as_latex(tables(results, missing), legend(results))
    return texts | {file: figure.svg.decode() for file, figure in (differences(results) if figures else {}).items()}


def _table_csv(folder: Path, results: Results) -> str:
    """table.csv, with the data sets of the runs that it has."""
    from diffusion_lab.tables.results import table_csv

    lines = list(csv.DictReader((folder / "table.csv").read_text(encoding="utf-8").splitlines()))
    data = {(line["row"], line["column"]): line["data"] for line in lines} if "data" in lines[0] else None
    return table_csv(results, data)


def result_folders() -> list[Path]:
    """All folders with the results of a paper's table."""
    return sorted(path.parent for path in FOLDER.glob("*/results/*/*/per_seed.csv"))


def results_of(name: str, scale: str) -> Results:
    """A table's committed results.

    Raises:
        FileNotFoundError: there are none.
    """
    from diffusion_lab.cli.table_files import conf_folders, load_table, measure_of
    from diffusion_lab.tables import Values, summarise
    from diffusion_lab.tables.values import read_per_seed

    table = load_table(name, conf_folders(None))
    paper, _, file = name.partition("/")
    values = read_per_seed((FOLDER / paper / "results" / scale / file / "per_seed.csv").read_text(encoding="utf-8"))
    measure = measure_of(table)
    return summarise(Values(table, values), measure.better, measure.scale)


def evidence(question: str) -> str:
    """What an answer rests on."""
    from experiments.evidence import evidence

    return evidence(question)


def part(module: str, name: str, *arguments: str) -> str:
    """A part of a study's page."""
    return import_module(f"experiments.{module}").PARTS[name](*arguments)


KINDS: dict[str, Callable[..., str]] = {"gpu_hours": gpu_hours, "pairs": pairs, "judged": judged}
WHOLE: dict[str, Callable[..., str]] = {
    "published": published,
    "reproduced": reproduced,
    "part": part,
    "archived": archived,
    "evidence": evidence,
    "along": along,
    "means": means,
    "rates": rates,
}


def stale() -> dict[Path, str]:
    """File -> its text as it would be now, of those that differ; of figures, which depend on the version of Matplotlib,
    those that are missing or stand beside another file that differs."""
    found = {page: text for page in pages() if (text := written(page)) != page.read_text(encoding="utf-8")}
    for folder in result_folders():
        files = {folder / name: text for name, text in result_files(folder).items()}
        old = {path: path.read_text(encoding="utf-8") for path in files if path.is_file()}
        if any(path not in old or (path.suffix != ".svg" and old[path] != text) for path, text in files.items()):
            found |= files
    return found


def main(arguments: list[str]) -> int:
    """Write the pages, or name the stale ones."""
    old = stale()
    for page in old:
        print(f"{'stale' if '--check' in arguments else 'written'}: {page.relative_to(FOLDER.parent)}")
    if "--check" in arguments:
        return int(bool(old))
    for page, text in old.items():
        page.write_text(text, encoding="utf-8")
    return 0


def _split(row: str) -> tuple[str, str, str]:
    first, second, third = (cell.strip() for cell in row.strip().strip("|").split("|"))
    return first, second, third


def _three_digits(number: float) -> str:
    """263, 65.5, 11,400"""
    return f"{float(f'{number:.3g}'):,.10g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
