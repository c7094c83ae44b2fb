"""`diffusion-lab compare A B`: how B differs from A: configuration, metrics, speed-up, curves and samples."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.command_line import add_question, check_question, given_options, parsed
from diffusion_lab.cli.errors import refuse
from diffusion_lab.files import refuse_folder
from diffusion_lab.progress import waiting
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from diffusion_lab.reports.pair.page import PairReport
    from diffusion_lab.reports.pair.pair import Pair
    from diffusion_lab.runs.run import Run, RunFolder


def main(argv: list[str]) -> int:
    """Compare, print the tables, write the page; returns 0, or 2 if the two cannot be compared."""
    options = parsed(_parser(), argv)
    from diffusion_lab.reports.pages.files import save

    try:
        check_question(options)
        refuse_folder(Path(options.out))
        with waiting("reading the runs and drawing the figures"):
            report, text, left_out = _made(options)
        page = Path(options.out)
        save(page, text.encode(), "out")
    except (ValueError, FileNotFoundError) as error:
        return refuse(error)
    _print(report, page, left_out)
    return 0


def _made(options: argparse.Namespace) -> tuple[PairReport, str, list[Run]]:
    """The comparison, its page, and the runs that it leaves out, as one that would end it; ValueError or
    FileNotFoundError if the two cannot be compared."""
    from diffusion_lab.cli.run_config_reader import read_run_config
    from diffusion_lab.reports.comparison.question import recorded_question
    from diffusion_lab.reports.failing_runs import set_apart
    from diffusion_lab.reports.pair.page import make_pair_report, pair_page
    from diffusion_lab.reports.pair.pair import alone, group_of, pair, side

    one, other = side("A", options.a), side("B", options.b)

    def paired(a: RunFolder, b: RunFolder) -> Pair:
        groups = group_of(one._replace(folder=a), read_run_config), group_of(other._replace(folder=b), read_run_config)
        recorded = recorded_question([run for group in groups for run in group.runs], a.questions | b.questions)
        return pair(*groups, options.metric, recorded, options.estimand, options.margin)

    def able(a: RunFolder, b: RunFolder) -> tuple[RunFolder, RunFolder]:
        paired(a, b)
        return a, b

    def words(folder: RunFolder) -> None:
        list(alone(folder, read_run_config))

    def compared(a: RunFolder, b: RunFolder) -> tuple[PairReport, str, list[Run]]:
        report = make_pair_report(paired(a, b))
        left_out = {run.folder: run for folder in (a, b) for run in folder.runs if not run.info and run.faults}
        words = command("compare", options.a, options.b, *given_options(options, ("metric", "estimand", "margin")))
        return report, pair_page(report, words), list(left_out.values())

    def trial(folder: RunFolder) -> None:
        for itself in alone(folder, read_run_config):
            pair_page(make_pair_report(itself), "")

    # Apart from the figures, which take long: what is wrong with an option is found here.
    first, second = set_apart(one.folder, lambda a: set_apart(other.folder, lambda b: able(a, b), words), words)
    return set_apart(first, lambda a: set_apart(second, lambda b: compared(a, b), trial), trial)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab compare",
        description="How B differs from A: configuration, final metrics, images and seconds to the same quality, "
        "curves and samples, in the terminal and on one HTML page. Seeds that both have are paired.",
    )
    what = "a run, or runs that differ in their seed alone; of a folder with several methods FOLDER:NAME"
    parser.add_argument("a", metavar="A", help=f"the baseline: {what}")
    parser.add_argument("b", metavar="B", help="what is compared with it, in the same form")
    parser.add_argument(
        "--metric", metavar="NAME", help="metric that decides, and of the curves and the speed-up, e.g. fd1k_digits"
    )
    add_question(parser)
    parser.add_argument("--out", metavar="FILE", default="compare.html", help="file of the page; default compare.html")
    return parser


def _print(report: PairReport, page: Path, left_out: Sequence[Run]) -> None:
    from diffusion_lab.reports.pages.terminal import Printer

    out = Printer()
    say = out.say
    base, own = report.pair.groups
    say(f"{own.label} compared with {base.label}")
    if report.configuration:
        out.table(report.differences)
    else:
        say("No key of the configuration that affects the results differs.")
        say()
    if report.metrics.answer:
        say(report.metrics.answer, "bold")
    out.table(report.metrics)
    for note in report.metrics.notes:
        say(note)
    say(report.metrics.legend, "dim")
    say()
    for sentence in report.speed:
        say(sentence)
    for run in left_out:
        say(f"{run.status:<12}{run.name}  {run.cause}")
    say()
    say(f"page: {page}", whole=True)
