"""Writes the cells of the pages in `experiments/` that can be computed, and says which pages are stale.

    python -m experiments.cells            write them (`make pages`)
    python -m experiments.cells --check    name the stale pages; exit code 1 if there are any

A block begins with a line `<!-- cells: KIND ARGUMENT -->` and ends with `<!-- end -->`; between them stands a Markdown
table of which the last cells are written, and the first ones say what for:

    gpu_hours            | text | `experiment` | GPU hours |  as `dry_run=true precision=bf16-mixed` prints them
    pairs FILE METRIC    | row - row | mean | interval |      differences paired by seed, from a FILE that
                                                              `report --table` has written
    published PAPER/TABLE   the whole table: a paper's numbers, from conf/table
    reproduced PAPER/TABLE SCALE    the whole table: a verdict for each row, from PAPER/results/SCALE/TABLE/per_seed.csv
    crossed DATA PART       the whole text: a part of the crossed study's page, from schedule_by_sampler/DATA.*.csv
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.intervals import paired_difference

if TYPE_CHECKING:
    from diffusion_lab.tables.results import Results

FOLDER = Path(__file__).resolve().parent
_BLOCK = re.compile(r"(<!-- cells: (\S+)([^>]*?) -->\n\n)(.*?)(\n<!-- end -->)", re.DOTALL)
_MINUS = "\N{MINUS SIGN}"


def pages() -> list[Path]:
    """All that have a block."""
    return [path for path in sorted(FOLDER.glob("**/*.md")) if _BLOCK.search(path.read_text(encoding="utf-8"))]


def written(page: Path) -> str:
    """The page's text with its cells as they are now."""

    def block(match: re.Match[str]) -> str:
        arguments = match[3].split()
        if match[2] in WHOLE:
            return match[1] + WHOLE[match[2]](*arguments) + "\n" + match[5]
        fill = KINDS[match[2]]
        head, rule, *rows = match[4].strip().split("\n")
        return match[1] + "\n".join([head, rule, *(fill(page, row, *arguments) for row in rows)]) + "\n" + match[5]

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


def pairs(page: Path, row: str, file: str, metric: str) -> str:
    """A row with the difference of the two rows of the study that it names; as it is while FILE is not there."""
    name, _, _ = _split(row)
    path = page.parent / file
    if not path.is_file():
        return row
    one, other = (seeds(path, label, metric) for label in name.split(f" {_MINUS} "))
    common = sorted(set(one) & set(other))
    difference = paired_difference([one[seed] for seed in common], [other[seed] for seed in common])
    mean, *ends = (
        f"{x:+.2f}".replace("-", _MINUS) for x in (difference.mean, difference.low or 0.0, difference.high or 0.0)
    )
    return f"| {name} | {mean} | [{', '.join(ends)}] |"


def seeds(path: Path, label: str, metric: str) -> dict[int, float]:
    """seed -> value of a row of a study.

    Raises:
        ValueError: the file has no such row.
    """
    with open(path, newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["row"] == label and line["metric"] == metric]
    if not lines:
        raise ValueError(f"row={label} must have {metric} in {path}; use the name that the table has")
    return {int(line["seed"]): float(line["value"]) for line in lines}


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


def reproduced(name: str, scale: str) -> str:
    """What a paper says of each row of a table, what was measured at a scale, and the verdict."""
    from diffusion_lab.tables.text import said_of, summary

    results = results_of(name, scale)
    place = f"results/{scale}/{name.partition('/')[2]}/table.md"
    head = f"[{results.table.title} at scale {scale}]({place})"
    lines = [[head, "the paper", f"here, {results.values.quantity}", "verdict"], ["---"] * 4]
    lines += [list(said_of(results, outcome)) for outcome in results.outcomes]
    table = "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)
    return f"{summary(results)}\n\n{table}".strip()


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
    return summarise(Values(table, values), measure_of(table).better)


def crossed(data: str, part: str) -> str:
    """A part of the crossed study's page."""
    from experiments import crossed_default, crossed_page

    return {**crossed_page.PARTS, **crossed_default.PARTS}[part](data)


KINDS: dict[str, Callable[..., str]] = {"gpu_hours": gpu_hours, "pairs": pairs}
WHOLE: dict[str, Callable[..., str]] = {"published": published, "reproduced": reproduced, "crossed": crossed}


def stale() -> list[Path]:
    """Pages whose text is not what it would be now."""
    return [page for page in pages() if written(page) != page.read_text(encoding="utf-8")]


def main(arguments: list[str]) -> int:
    """Write the pages, or name the stale ones."""
    old = stale()
    for page in old:
        print(f"{'stale' if '--check' in arguments else 'written'}: {page.relative_to(FOLDER.parent)}")
    if "--check" in arguments:
        return int(bool(old))
    for page in old:
        page.write_text(written(page), encoding="utf-8")
    return 0


def _split(row: str) -> tuple[str, str, str]:
    first, second, third = (cell.strip() for cell in row.strip().strip("|").split("|"))
    return first, second, third


def _three_digits(number: float) -> str:
    """263, 65.5, 11,400"""
    return f"{float(f'{number:.3g}'):,.10g}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
