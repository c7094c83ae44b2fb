"""`diffusion-lab report FOLDER`: the comparison of a folder of runs, in the terminal and as one HTML page."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.errors import EXIT_CONFIG

if TYPE_CHECKING:
    from diffusion_lab.reports import Group, RunFolder

PLAIN_WIDTH = 180  # characters, where there is no terminal to wrap for


def main(argv: list[str]) -> int:
    """Read the runs, print the table, write the page; returns 0, or 2 when there is nothing to report on."""
    try:
        options = _parser().parse_args(argv)
    except SystemExit as end:  # argparse has printed the help or the fault
        return int(end.code or 0)
    from diffusion_lab.reports import choose_metric, group_runs, read_runs, write_figures, write_page

    try:
        folder = read_runs(options.folder)
        groups = group_runs(folder.runs, options.by)
        metric = choose_metric(groups, options.metric)
        page = write_page(options.out or Path(options.folder) / "report.html", folder, groups, metric, options.by)
        pictures = write_figures(options.figures, groups, metric) if options.figures else []
    except (ValueError, FileNotFoundError) as error:
        print(f"config error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    _print(folder, groups, metric, page, options.by)
    for picture in pictures:
        print(f"figure: {picture}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab report",
        description="Table and one HTML page for a folder of runs, finished or not; runs that differ in their seed "
        "alone are averaged, others never.",
    )
    parser.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="a run, a sweep, or all (runs)")
    parser.add_argument("--metric", metavar="NAME", help="compare by this, e.g. fd1k_digits, precision or val/loss")
    parser.add_argument("--by", metavar="KEY", help="name the rows by this configuration key, e.g. solver.steps")
    parser.add_argument("--out", metavar="FILE", help="where the page goes; default FOLDER/report.html")
    parser.add_argument("--figures", metavar="DIR", help="also write the page's figures there, as SVG files")
    return parser


def _print(folder: RunFolder, groups: list[Group], metric: str, page: Path, by: str | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from diffusion_lab.reports import notes, summarise
    from diffusion_lab.reports.cells import cells, header, legend, rich_table
    from diffusion_lab.reports.tables import baseline

    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    counts = ", ".join(f"{count} {status}" for status, count in folder.counts.items())
    say(f"{folder.path}: {counts}")
    if groups:
        rows = summarise(groups, metric)
        console.print(rich_table(header(metric, baseline(groups, metric).label, by), cells(rows)))
        say(legend(rows), "dim")
    for trouble in notes.troubles(folder, metric):
        say(f"{trouble.status:<12}{trouble.run}  {trouble.progress}  {trouble.cause}")
        if trouble.overrides:
            say(f"{'':<12}{trouble.overrides}", "dim")
        if trouble.log and trouble.status not in ("running", "pending"):
            say(f"{'':<12}log: {trouble.log}", "dim")
    command, reason = notes.next_command(folder, groups, metric)
    say(f"\npage: {page}\nnext: {command}\n      ({reason})")
