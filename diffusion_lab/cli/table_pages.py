"""The terminal of `diffusion-lab reproduce`: its plan, its table, and the files it has written."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from diffusion_lab.cli.table_jobs import Job
    from diffusion_lab.cli.table_plan import Plan
    from diffusion_lab.cli.table_study import Study
    from diffusion_lab.reports.comparison.cells import Comparison
    from diffusion_lab.tables import TableRow
    from diffusion_lab.tables.page import TablePage
    from diffusion_lab.tables.values import Gathered


def print_plan(study: Study, plan: Plan, later: Sequence[TableRow], place: Path) -> None:
    """Jobs, time, disk, what is missing, settings, and the folder `place` of the table's files."""
    from diffusion_lab.cli.dry_run import size
    from diffusion_lab.cli.table_plan import common_and_different
    from diffusion_lab.progress import duration
    from diffusion_lab.reports.comparison.cells import Cell, Comparison

    done = len(plan.jobs) - len(plan.open)
    print(f"{study.table.title} at scale {study.scale.name}: {study.scale.says}")
    runs = f"{len(plan.jobs)} run{'s' * (len(plan.jobs) != 1)} with {_seeds(study.seeds)}"
    print(f"{runs}; {done} of them {'is' if done == 1 else 'are'} done", flush=True)
    if later:
        print(f"after them, from their weights: {', '.join(row.title for row in later)}")
    if plan.open:
        hours = f" ({plan.gpu_hours:.3g} GPU hours)" if plan.gpu_hours else ""
        print(f"one after another {duration(plan.seconds)}{hours}, {size(plan.disk)} of checkpoints; {plan.basis}")
    for name, reason in ((row.title, row.absent.get(study.scale.name)) for row in study.table.rows):
        if reason:
            print(f"not at this scale: {name}, because {reason}")
    if plan.beside:
        print(f"finished runs of these rows are here with {plan.beside}; they are not used")
    for text in plan.missing:
        print(f"missing here: {text}")
    shared, titles, lines = common_and_different(plan.jobs)
    print(f"all: {', '.join(f'{key} {value}' for key, value in shared.items())}")
    if lines:
        _show(Comparison(titles, [[Cell(text) for text in line] for line in lines], "", []))
    ids = ", ".join(f"{row.name} ({row.title})" for row in rows_here(study))
    print(f"names of the rows for --only: {ids}")
    print(f"runs in {study.root}, table in {place}", flush=True)


def _seeds(seeds: Sequence[int]) -> str:
    """`seeds 0, 1 and 2`, `seed 0`."""
    words = [str(seed) for seed in seeds]
    listed = " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
    return f"seed{'s' * (len(words) != 1)} {listed}"


def seeds_on_page(place: Path) -> set[int]:
    """The seeds of the page that is there."""
    from diffusion_lab.tables.page import PER_SEED
    from diffusion_lab.tables.values import read_per_seed

    try:
        return {value.seed for value in read_per_seed((place / PER_SEED).read_text(encoding="utf-8"))}
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        return set()  # no page that can be read; `writable` says what is wrong with the folder


def write_all(study: Study, jobs: Sequence[Job], chosen: Sequence[TableRow], out: Path | None) -> int:
    """Measure, write the files, print the table; returns 1 if a cell of the chosen rows could not be measured."""
    from diffusion_lab.tables.page import write_pages
    from diffusion_lab.tables.said import answer, sentences
    from diffusion_lab.tables.text import legend

    page, place = page_of(study, jobs), study.place(out)
    paths = write_pages(page, place)
    for title, table in page.tables.items():
        print(f"\n{title}")
        _show(table)
    print(f"\n{legend(page.results)}")
    before = set(page.gathered.values.seeds) - {*study.seeds}
    if before:
        print(f"with {_seeds(sorted(before))}, which the page had before")
    print(answer(page.results))
    for _, text in sentences(page.results):
        print(f"  {text}")
    for title, table in page.speeds.items():
        print(f"\nhow much faster, {title}" if len(page.speeds) > 1 else "\nhow much faster")
        _show(table)
    print(f"\nwritten to {place}: {', '.join(path.name for path in paths)}")
    print(f"page: {place / 'page.html'}")
    print(f"next: {command('report', study.root)}")
    return int(any(row.name in {name for name, _ in page.gathered.missing} for row in chosen))


def rows_here(study: Study) -> list[TableRow]:
    """The rows that can be trained at the scale."""
    return [row for row in study.table.rows if study.scale.name not in row.absent]


def page_of(study: Study, jobs: Sequence[Job]) -> TablePage:
    """Everything that the pages show."""
    from diffusion_lab.cli.table_files import measure_of
    from diffusion_lab.cli.table_plan import common_and_different
    from diffusion_lab.reports.pages.notes import versions
    from diffusion_lab.tables.page import TablePage, absent_rows
    from diffusion_lab.tables.results import summarise
    from diffusion_lab.tables.values import TrainedRun, gather

    measure = measure_of(study.table)
    trained = [TrainedRun(job.row, job.column, job.model, job.seed, study.root / job.folder, job.steps) for job in jobs]
    gathered = gather(study.table, trained, measure, study.analyse)
    late = {(row.name, c.name) for row in rows_here(study) if row.start for c in study.table.columns_of(row)}
    late -= {(one.row.name, one.column.name) for one in trained}
    waiting = dict.fromkeys(late, "the run that it starts from is missing")
    missing = {**gathered.missing, **waiting, **absent_rows(study.table, study.scale)}
    gathered = gathered._replace(missing=missing)
    results = summarise(gathered.values, measure.better, measure.scale)
    settings, used = common_and_different(jobs), versions(gathered.every)
    return TablePage(results, gathered, study.scale, settings, [_command(study, gathered)], used)


def _command(study: Study, gathered: Gathered) -> str:
    """The command that makes the page anywhere: without the folders and the launcher of this machine."""
    seeds, rows = gathered.values.seeds, {row for row, _ in gathered.runs}
    words = ["diffusion-lab", "reproduce", study.table.name, f"scale={study.scale.name}"]
    if seeds and seeds != sorted(study.scale.seeds):
        words.append(f"--seeds={','.join(map(str, seeds))}")
    if rows and rows != {row.name for row in rows_here(study)}:
        words.append(f"--only={','.join(row.name for row in study.table.rows if row.name in rows)}")
    return shlex.join([*words, *(f"--config-dir={folder}" for folder in study.jobs.config_dirs), *study.jobs.further])


def _show(table: Comparison) -> None:
    """Print a table with its notes."""
    from diffusion_lab.reports.pages.terminal import Printer

    out = Printer()
    out.only_on_page(out.table(table), style="")
    for note in table.notes:
        print(note)
