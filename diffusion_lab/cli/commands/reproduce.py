"""`diffusion-lab reproduce PAPER/TABLE scale=mini`: a table of a paper, from its runs to its pages, with one command.

First the plan; then the sweep, which skips what is done and goes on with what is not; then what the table measures of
every run; then the measured and the published numbers in the paper's layout, on the terminal and as files. After an
interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.command_line import check_options, seeds_of
from diffusion_lab.cli.config import given_config_dirs
from diffusion_lab.cli.errors import EXIT_FAILED, ConfigError, InvalidConfig, config_errors, nearest
from diffusion_lab.cli.output_folders import writable
from diffusion_lab.cli.table_files import conf_folders, load_scale, load_table, measure_of, scale_names, table_names
from diffusion_lab.cli.table_study import Study
from diffusion_lab.failure import Failure
from diffusion_lab.progress import waiting
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from diffusion_lab.cli.table_jobs import Job
    from diffusion_lab.tables import TableRow


def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    options, words = _parser().parse_known_args(argv)
    try:
        check_options(argv, _parser())
        _check_listed(options, argv)
        if options.list or not options.table:
            return _list(options.config_dir)
        own = [options.config_dir] if options.config_dir else []
        from diffusion_lab.cli.compose_errors import explained

        with given_config_dirs(own), explained(words):
            return _reproduce(options, words, argv, own)
    except Failure as error:
        print(f"failed: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("stopped by signal 2; the same command goes on", file=sys.stderr)
        return 128 + 2


def _check_listed(options: argparse.Namespace, argv: Sequence[str]) -> None:
    """Raise ConfigError for a table that is named beside --list, and for what needs one without it."""
    if options.list and options.table:
        raise ConfigError(f"{options.table} must be left out with --list, which names every table")
    about = ("--seeds", "--only", "--out", "--dry-run")
    given = next((word for word in argv if word.partition("=")[0] in about), None)
    if given and not (options.table or options.list):
        raise ConfigError(f"PAPER/TABLE must be given with {given}; diffusion-lab reproduce --list names every table")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab reproduce",
        allow_abbrev=False,
        usage="diffusion-lab reproduce PAPER/TABLE [scale=smoke|mini|small|paper] [key=value ...]",
        description="A table or figure of a paper from one command: plan, runs, and a table of the measured "
        "and the published numbers. Further words are settings of every run, e.g. trainer.devices=4, or of the "
        "launcher, e.g. hydra.launcher.n_jobs=4 or hydra/launcher=diffusion_lab_slurm.",
    )
    parser.add_argument("table", nargs="?", metavar="PAPER/TABLE", help="e.g. adaptive_beta/table1")
    parser.add_argument("--list", action="store_true", help="the tables and scales there are")
    parser.add_argument("--only", metavar="ROW,..", help="train these rows alone, by the names or titles in the plan")
    parser.add_argument("--seeds", metavar="0,1,2", help="seeds; default: the scale's")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument(
        "--out", metavar="DIR", help="write to DIR/PAPER/results/SCALE/TABLE instead of beside the runs"
    )
    parser.add_argument("--config-dir", metavar="DIR", help="folder of your own yaml files")
    return parser


def _reproduce(options: argparse.Namespace, words: list[str], argv: list[str], own: list[str]) -> int:
    from diffusion_lab.cli.table_jobs import Jobs, check_further

    folders = conf_folders(options.config_dir)
    given = _settings(words)
    if (dry := given.pop("dry_run", "false").lower()) not in ("true", "false"):  # as `train` has it
        raise ConfigError(f"dry_run={dry} must be true or false; use --dry-run")
    dry_run = options.dry_run or dry == "true"
    table = load_table(options.table, folders)
    measure_of(table)  # its faults are said before the runs
    scale = load_scale(given.pop("scale", "smoke"), folders)
    seeds = seeds_of(options.seeds) or list(scale.seeds)
    hydra = [f"{key}={value}" for key, value in given.items() if key.lstrip("+~").startswith("hydra")]
    check_further(table, hydra)
    root = Path(_unquoted(given.pop("paths.root", "runs"))) / "reproduce" / scale.name
    further = [f"{key}={value}" for key, value in given.items() if not key.lstrip("+~").startswith("hydra")]
    rows = [row for row in table.rows if scale.name not in row.absent]
    chosen = _chosen(rows, options.only)
    jobs = Jobs(table, scale, further, own)
    launcher = [] if "hydra/launcher" in given else scale.launcher  # another launcher has other settings
    study = Study(table, scale, root, seeds, jobs, ["reproduce", *argv], [*launcher, *hydra])
    out = Path(options.out) if options.out else None
    return _run(study, rows, chosen, dry_run, out)


def _run(study: Study, rows: Sequence[TableRow], chosen: Sequence[TableRow], dry_run: bool, out: Path | None) -> int:
    """Plan, train, measure and write; returns the exit code. A row whose start is not there is not trained.

    Seeds that the page already has stay on it; they are read and not trained.
    """
    from diffusion_lab.cli.table_pages import seeds_on_page, write_all

    seeds = [*study.seeds, *sorted(seeds_on_page(study.place(out)) - {*study.seeds})]
    first, after = ([row for row in rows if bool(row.start) == late] for late in (False, True))
    with waiting("composing the runs"):
        jobs = list(study.jobs.of([row for row in first if row in chosen], seeds, {}))
    code = _stage(study, jobs, chosen, dry_run, out, after)
    if dry_run or code not in (0, EXIT_FAILED):
        return code
    with waiting("composing the other runs"):  # which the page may have from before
        jobs = list(study.jobs.of(first, seeds, {}))
    if after:
        starts = {(job.row.name, job.column.name, job.seed): study.root / job.folder for job in study.done(jobs)}
        with waiting("composing the runs that go on from others"):
            later = list(study.jobs.of(after, seeds, starts))
        code = max(code, _stage(study, later, chosen, False, out, []))
        jobs += later
    if code not in (0, EXIT_FAILED):
        return code
    done = {job.folder for job in study.done(jobs)}
    return write_all(study, [job for job in jobs if job.seed in study.seeds or job.folder in done], chosen, out) or code


def _stage(
    study: Study,
    jobs: Sequence[Job],
    chosen: Sequence[TableRow],
    dry_run: bool,
    out: Path | None,
    later: Sequence[TableRow],
) -> int:
    """Print the plan of jobs that can run now, and train what is not done; `later` come after them.

    Raises:
        InvalidConfig: this machine lacks something.
        ConfigError: a folder cannot be written to.
    """
    from diffusion_lab.cli.table_pages import print_plan
    from diffusion_lab.cli.table_plan import plan_of

    with config_errors(""):  # of the parts that are made to measure their time
        plan = plan_of([job for job in jobs if job.row in chosen and job.seed in study.seeds], study.root)
    print_plan(study, plan, later, study.place(out))
    if dry_run:
        again = [word for word in study.typed if word != "--dry-run" and not word.startswith("dry_run=")]
        print(f"next: {command(*again)}")
        return 0
    if plan.missing:
        raise InvalidConfig([ConfigError(text) for text in plan.missing])
    writable("paths.root", study.root)
    writable("out" if out else "paths.root", study.place(out))
    return study.train(plan)


def _settings(words: Sequence[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word or word.startswith("-"):
            raise ConfigError(f"{word} must be a setting, key=value, or an option; see diffusion-lab reproduce --help")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _unquoted(value: str) -> str:
    """The value of a word, which may have Hydra's quotes."""
    if value[:1] not in ("'", '"'):
        return value
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return str(OverridesParser.create().parse_override(f"paths.root={value}").value())


def _chosen(rows: Sequence[TableRow], only: str | None) -> list[TableRow]:
    names = [row.name for row in rows]
    titles = {row.title: row.name for row in rows}
    if only in titles:  # which may have commas
        only = titles[only]
    chosen = [titles.get(name.strip(), name.strip()) for name in only.split(",")] if only else names
    for name in chosen:
        if name not in names:
            raise ConfigError(f"only={name} must be a row; use one of {', '.join(names)}{nearest(name, names)}")
    starts = {row.start for row in rows if row.name in chosen}
    return [row for row in rows if row.name in chosen or row.name in starts]


def _list(config_dir: str | None) -> int:
    """Print all tables by kind, and the scales."""
    from diffusion_lab.tables.table import KINDS

    folders = conf_folders(config_dir)
    with waiting("reading the tables"):
        tables = [load_table(name, folders) for name in table_names(folders)]
    width = max(len(table.name) for table in tables) + 2
    for kind in KINDS:
        print(f"{kind}s")
        for table in (one for one in tables if one.kind == kind):
            print(f"  {table.name:<{width}}{table.says}")
    print("scales")
    for name in scale_names(folders):
        print(f"  {name:<{width}}{load_scale(name, folders).says}")
    print("\nnext: diffusion-lab reproduce adaptive_beta/table1 scale=smoke --dry-run")
    return 0
