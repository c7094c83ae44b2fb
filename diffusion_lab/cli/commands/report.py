"""`diffusion-lab report FOLDER`: the comparison of a folder of runs, in the terminal and as one HTML page."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.command_line import add_question, check_question, given_options, parsed
from diffusion_lab.cli.errors import refuse
from diffusion_lab.files import refuse_folder
from diffusion_lab.printable import one_line
from diffusion_lab.progress import waiting
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from diffusion_lab.reports import Report, Section
    from diffusion_lab.runs.find import RunsFolder
    from diffusion_lab.runs.run import RunFolder

    Written = list[tuple[str, Path]]

EVERY = 10.0  # seconds between two looks of --watch


def main(argv: list[str]) -> int:
    """Read the runs, print the table, write the page; returns 0, or 2 if there is nothing to report, and with --watch
    130 when it is interrupted."""
    options = parsed(_parser(), argv)
    from diffusion_lab.cli.output_folders import writable
    from diffusion_lab.reports import read_runs
    from diffusion_lab.reports.pages.files import path_beside

    try:
        _check(options)
        if options.folder is None:
            options.folder = "runs"
            from diffusion_lab.runs.find import runs_folders

            found = runs_folders(Path(options.folder))
            if len(found) > 1 and argv:
                raise ValueError(
                    f"FOLDER must be given with {argv[0]}, because there are {len(found)} folders of runs in runs; use "
                    f"one of {', '.join(str(place.folder) for place in found)}"
                )
            if len(found) > 1:
                print("\n".join(_overview(found)))
                return 0
        page = Path(options.out or Path(options.folder) / "report.html")
        for path in (page, *((Path(options.table), path_beside(options.table)) if options.table else ())):
            refuse_folder(path)
        if options.figures:
            writable("figures", Path(options.figures), make=False)
        if options.watch:
            from diffusion_lab.cli.report_watch import watch

            return watch(
                options.folder, options.every or EVERY, partial(_written, options, page), partial(_print, page)
            )
        report, written = _written(options, page, read_runs(options.folder))
    except (ValueError, FileNotFoundError) as error:
        return refuse(error)
    _print(page, report, written)
    return _log(report, _command(options)) if options.wandb else 0


def _overview(found: list[RunsFolder]) -> list[str]:
    """A line for each folder of runs, with its command, and the command for the newest at the end."""
    from diffusion_lab.runs.run import status_words

    names = [one_line(str(place.folder)) for place in found]
    counts = [status_words(place.runs) for place in found]
    width, middle = max(map(len, names)), max(map(len, counts))
    rows = [
        f"  {name:<{width}}  {count:<{middle}}  {one_line(place.newest[:16].replace('T', ' '))}".rstrip()
        for name, count, place in zip(names, counts, found, strict=True)
    ]
    title = "There are several folders of runs, the newest first:"
    return [title, "", *rows, "", f"next: {command('report', names[0])}"]


def _check(options: argparse.Namespace) -> None:
    """Raise ValueError if an option has a value that it cannot have."""
    from diffusion_lab.reports import check_suffix

    if options.table:
        check_suffix(options.table)
    check_question(options)
    if options.top is not None and options.top < 1:
        raise ValueError(f"top={options.top} must be at least 1; use e.g. --top 12")
    if options.top is not None and options.only:
        raise ValueError(f"top={options.top} must be left out with --only, which names the rows")
    if options.every is not None and not options.watch:
        raise ValueError(f"every={options.every:g} must be left out without --watch")
    if options.every is not None and not 1 <= options.every <= 86400:
        raise ValueError(f"every={options.every:g} must be 1 to 86400 seconds; use e.g. --every 10")
    if options.watch and options.wandb:
        raise ValueError("watch with --wandb must not log each table; leave --wandb out, and log the last one")


def _written(options: argparse.Namespace, page: Path, folder: RunFolder) -> tuple[Report, Written]:
    """The report, whose files are written, and which these are, with what each is."""
    from diffusion_lab.reports import write_figures, write_per_seed, write_table
    from diffusion_lab.reports.pages.files import save

    with waiting("reading the runs and drawing the figures"):
        report, text = _made(options, folder)
    for option in ("table", "wandb"):
        if getattr(options, option) and not report.parts:
            typed = f"{option}={getattr(options, option)}"
            raise ValueError(f"{typed} must have a run that has begun to train; leave --{option} out")
    save(page, text.encode(), "out")
    written: Written = []
    if options.table:
        written.append(("table", write_table(options.table, report.folder, report.tables, _command(options))))
        written.append(("per seed", write_per_seed(options.table, [part.section for part in report.parts])))
    if options.figures:
        written += [("figure", path) for path in write_figures(options.figures, report)]
    return report, written


def _log(report: Report, command: str) -> int:
    """Log the report to W&B; returns 0, or 2 if its runs have no place there."""
    from diffusion_lab.cli.report_wandb import log_report

    try:
        log_report(report, command)
    except ValueError as error:
        return refuse(error)
    return 0


def _made(options: argparse.Namespace, runs: RunFolder) -> tuple[Report, str]:
    """The report and its page; a run that would end it is set apart.

    Raises:
        ValueError, FileNotFoundError: there is nothing to report, or an option does not fit.
    """
    from diffusion_lab.cli.run_config_reader import read_run_config
    from diffusion_lab.reports import make_report, page, sections_of
    from diffusion_lab.reports.comparison.shown import Choice
    from diffusion_lab.reports.failing_runs import set_apart

    choice = Choice([name for name in (options.only or "").split(",") if name], options.top)

    def sections(folder: RunFolder) -> list[Section]:
        return sections_of(
            folder.runs,
            options.metric,
            options.by,
            options.baseline,
            read_run_config,
            options.estimand,
            options.margin,
            folder.questions,
            options.within,
        )

    def report(folder: RunFolder) -> tuple[Report, str]:
        made = make_report(folder, found if folder is whole else sections(folder), options.by, choice)
        return made, page(made)

    # Apart from the figures, which take long: what is wrong with an option is found here.
    whole, found = set_apart(
        runs,
        lambda folder: (folder, sections(folder)),
        lambda folder: sections_of(folder.runs, read=read_run_config),
    )
    return set_apart(
        whole, report, lambda folder: page(make_report(folder, sections_of(folder.runs, read=read_run_config)))
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab report",
        description="Table and one HTML page for a folder of runs, finished or not. Only runs that differ in nothing "
        "but their seed are averaged.",
    )
    parser.add_argument(
        "folder", nargs="?", metavar="FOLDER", help="a run, a sweep, or all (runs); without it the sweeps are listed"
    )
    parser.add_argument("--metric", metavar="NAME", help="metric to compare, e.g. fd1k_digits, precision or val/loss")
    parser.add_argument("--by", metavar="KEY", help="configuration key that names the rows, e.g. solver.steps")
    parser.add_argument(
        "--within",
        metavar="KEY",
        help="compare within each value of a configuration key, e.g. max_steps, and show how the ratio changes with it",
    )
    parser.add_argument("--baseline", metavar="NAME", help="row to compare with, or words of it; default: the first")
    add_question(parser)
    parser.add_argument(
        "--only", metavar="NAME,NAME", help="of many rows, those that figures and samples show beside the baseline"
    )
    parser.add_argument(
        "--top", metavar="N", type=int, help="of many rows, how many of the best they show; default: 4, and the worst 2"
    )
    parser.add_argument("--out", metavar="FILE", help="file of the page; default FOLDER/report.html")
    parser.add_argument("--figures", metavar="DIR", help="also write the figures as SVG files")
    parser.add_argument(
        "--table", metavar="FILE", help="also write the table, as .md or .tex, and its values per seed as .csv"
    )
    parser.add_argument("--watch", action="store_true", help="renew table and page while the runs go on, until Ctrl-C")
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        help=f"seconds between checks of --watch; default: {EVERY:g}",
    )
    parser.add_argument(
        "--wandb", action="store_true", help="also log the table and its verdicts to W&B, as a run in the runs' group"
    )
    return parser


def _command(options: argparse.Namespace) -> str:
    """The command that writes this table, without options that do not change it."""
    keys = ("metric", "by", "within", "baseline", "estimand", "margin", "table")
    return command("report", options.folder, *given_options(options, keys))


def _print(page: Path, report: Report, written: Written) -> None:
    from diffusion_lab.reports.pages import notes
    from diffusion_lab.reports.pages.terminal import Printer
    from diffusion_lab.runs.run import status_words

    out, folder = Printer(), report.folder
    say = out.say
    say(f"{folder.path}: {status_words(folder.runs)}")
    for part in report.parts:
        if len(report.parts) > 1:
            say()
            say(part.section.title, "bold")
        say(part.table.answer, "bold")
        left_out = out.table(part.brief)
        if hidden := len(part.table.lines) - len(part.brief.lines):
            say(f"{hidden} more rows are on the page; --top N prints the N best, --only NAME,NAME those named.", "dim")
        say()
        out.only_on_page(left_out)
        for note in filter(None, [*part.table.notes, notes.also_measured(part.section.groups, part.section.metric)]):
            say(note)
        say(part.table.legend, "dim")
        if part.table.next_hour:
            say(part.table.next_hour)
    for course in report.courses:
        say()
        say(course.title, "bold")
        out.only_on_page(out.table(course.table))
        say(course.table.legend, "dim")
    troubles, waiting = notes.listed(notes.troubles(folder, report.metric))
    for trouble in troubles:
        say(f"{trouble.status:<12}{trouble.run}  {trouble.progress}  {trouble.cause}")
        if trouble.overrides:
            say(f"{'':<12}{trouble.overrides}", "dim", whole=True)
        if trouble.log and trouble.status not in ("running", "pending"):
            say(f"{'':<12}log: {trouble.log}", "dim", whole=True)
    if waiting:
        say(f"{'pending':<12}{len(waiting)} runs that have not started")
    command, reason = notes.next_command(folder, report.groups, report.metric)
    say()
    for text in (f"page: {page}", f"next: {command}", f"      ({reason})"):
        say(text, whole=True)
    for what, path in written:
        print(one_line(f"{what}: {path}"))
