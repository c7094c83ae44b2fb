"""`diffusion-lab reproduce PAPER/TABLE scale=mini`: a table of a paper, from its runs to its pages, with one command.

First the plan; then the sweep, which skips what is done and goes on with what is not; then what the table measures of
every run; then the table in the paper's layout, measured beside published, on the terminal and as files. After an
interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab.cli.errors import EXIT_CONFIG, EXIT_FAILED, ConfigError, InvalidConfig, config_errors, nearest

if TYPE_CHECKING:
    from diffusion_lab.cli.table_jobs import Job
    from diffusion_lab.cli.table_plan import Plan
    from diffusion_lab.tables import Row, Scale, Table

TABLES, SCALES = "table", "table_scale"


def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    try:
        options, words = _parser().parse_known_args(argv)
    except SystemExit as end:  # argparse has printed the help or the error
        return int(end.code or 0)
    try:
        if options.list or not options.table:
            return _list(options.config_dir)
        return _reproduce(options, words, argv)
    except (ConfigError, InvalidConfig, ValueError) as error:
        for line in error.errors if isinstance(error, InvalidConfig) else [error]:
            print(f"config error: {line}", file=sys.stderr)
        return EXIT_CONFIG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab reproduce",
        usage="diffusion-lab reproduce PAPER/TABLE [scale=smoke|mini|small|paper] [key=value ...]",
        description="A table or figure of a paper from one command: plan, runs, and the table with measured beside "
        "published numbers. Further words are settings of every run, e.g. trainer.devices=4, or of the launcher, e.g. "
        "hydra.launcher.n_jobs=4 or hydra/launcher=diffusion_lab_slurm.",
    )
    parser.add_argument("table", nargs="?", metavar="PAPER/TABLE", help="e.g. adaptive_beta/table1")
    parser.add_argument("--list", action="store_true", help="the tables and scales there are")
    parser.add_argument("--only", metavar="ROW,..", help="train these rows alone")
    parser.add_argument("--seeds", metavar="0,1,2", help="seeds; default: the scale's")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument(
        "--out", metavar="DIR", help="write to DIR/PAPER/results/SCALE/TABLE instead of beside the runs"
    )
    parser.add_argument("--config-dir", metavar="DIR", help="folder of your own yaml files")
    return parser


def _reproduce(options: argparse.Namespace, words: list[str], argv: list[str]) -> int:
    from diffusion_lab.cli.table_jobs import Jobs

    folders = conf_folders(options.config_dir)
    given = _settings(words)
    table = load_table(options.table, folders)
    scale = load_scale(given.pop("scale", "smoke"), folders)
    seeds = _seeds(options.seeds) or list(scale.seeds)
    hydra = [f"{key}={value}" for key, value in given.items() if key.startswith("hydra")]
    root = Path(given.pop("paths.root", "runs")) / "reproduce" / scale.name
    further = [f"{key}={value}" for key, value in given.items() if not key.startswith("hydra")]
    rows = [row for row in table.rows if scale.name not in row.absent]
    chosen = _chosen(rows, options.only)
    jobs = Jobs(table, scale, further, [options.config_dir] if options.config_dir else [])
    study = Study(table, scale, root, seeds, jobs, ["reproduce", *argv], [*scale.launcher, *hydra])
    return study.run(rows, chosen, options.dry_run, Path(options.out) if options.out else None)


class Study:
    """A table at a scale, with its seeds and folders.

    Args:
        table, scale: as loaded.
        root: folder of the runs of all tables at this scale.
        seeds: of the entries.
        jobs: composes the jobs.
        typed: the command's words.
        launcher: settings of Hydra's launcher.
    """

    def __init__(
        self,
        table: Table,
        scale: Scale,
        root: Path,
        seeds: Sequence[int],
        jobs: Any,
        typed: list[str],
        launcher: Sequence[str],
    ) -> None:
        self.table, self.scale, self.root, self.seeds = table, scale, root, list(seeds)
        self.jobs, self.typed, self.launcher = jobs, typed, list(launcher)
        self._analysed: dict[Path, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    def run(self, rows: Sequence[Row], chosen: Sequence[Row], dry_run: bool, out: Path | None) -> int:
        """Plan, train, measure and write; returns the exit code."""
        first, after = ([row for row in rows if bool(row.start) == late] for late in (False, True))
        jobs = list(self.jobs.of(first, self.seeds, {}))
        code = self._stage(jobs, chosen, dry_run, after)
        if after and not dry_run and code in (0, EXIT_FAILED):
            starts = {(job.row.name, job.column.name, job.seed): self.root / job.folder for job in jobs}
            later = list(self.jobs.of(after, self.seeds, starts))
            code = max(code, self._stage(later, chosen, False, []))
            jobs += later
        if dry_run or code not in (0, EXIT_FAILED):
            return code
        return self._finish(jobs, out) or code

    def _stage(self, jobs: Sequence[Job], chosen: Sequence[Row], dry_run: bool, later: Sequence[Row]) -> int:
        """Print the plan of jobs that can run now, and train what is not done; `later` come after them.

        Raises:
            InvalidConfig: this machine lacks something.
        """
        from diffusion_lab.cli.table_pages import print_plan
        from diffusion_lab.cli.table_plan import plan_of

        plan = plan_of([job for job in jobs if job.row in chosen], self.root)
        print_plan(self, plan, later)
        if dry_run:
            return 0
        if plan.missing:
            raise InvalidConfig([ConfigError(text) for text in plan.missing])
        return self._sweep(plan)

    def _sweep(self, plan: Plan) -> int:
        """Train what is not done."""
        from diffusion_lab.cli.app import App
        from diffusion_lab.files import write_whole

        if not plan.open:
            return 0
        file = self.root / f"{self.table.name.replace('/', '-')}.jobs"
        write_whole(file, "".join(shlex.join(job.words) + "\n" for job in plan.open).encode())
        words = ["-m", "hydra/sweeper=listed", f"hydra.sweeper.file={file}", f"hydra.sweep.dir={self.root}"]
        return App("train", [*words, *self.launcher], typed=self.typed).run()

    def _finish(self, jobs: Sequence[Job], out: Path | None) -> int:
        """Measure, write the files and print the table."""
        from diffusion_lab.cli.table_pages import write_all

        place = self.root / "tables" / self.table.name
        if out is not None:
            paper, _, name = self.table.name.partition("/")
            place = out / paper / "results" / self.scale.name / name
        return write_all(self, jobs, place)

    def analyse(
        self, name: str, runs: Sequence[Any], words: Sequence[str]
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The facts and the arrays of an analysis of runs, which is computed unless it is there.

        Raises:
            ValueError: it cannot be computed; the reason has been printed.
        """
        import hashlib

        from diffusion_lab.cli.app import App
        from diffusion_lab.files import read_object
        from diffusion_lab.runs.analyses import DATA, FACTS

        words = [*words, *self.scale.analysis.get(name, ())]
        key = hashlib.sha256(" ".join([*(run.folder.name for run in runs), *words]).encode()).hexdigest()[:8]
        place = self.root / "analyses" / f"{name}-{key}"
        if place in self._analysed:
            return self._analysed[place]
        folders = ",".join(str(run.folder) for run in runs)
        arguments = [f"analysis={name}", f"run={folders}", f"outdir={place}", *words]
        with contextlib.redirect_stdout(io.StringIO()):
            code = App("analyze", arguments, typed=["analyze", *arguments]).run()
        if code:
            raise ValueError(f"`diffusion-lab {shlex.join(['analyze', *arguments])}` ended with exit code {code}")
        import numpy as np

        with np.load(place / DATA) as data:
            self._analysed[place] = read_object(place / FACTS) or {}, dict(data)
        return self._analysed[place]


def conf_folders(config_dir: str | None) -> list[Path]:
    """Folders with yaml files, the project's first."""
    from diffusion_lab.cli.config import conf_dir

    return [conf_dir(), *([Path(config_dir)] if config_dir else [])]


def table_names(folders: Sequence[Path]) -> list[str]:
    """All tables, as PAPER/NAME."""
    paths = [path.relative_to(folder / TABLES) for folder in folders for path in (folder / TABLES).glob("*/*.yaml")]
    return sorted(str(path.with_suffix("")) for path in paths)


def load_table(name: str, folders: Sequence[Path]) -> Table:
    """The table PAPER/NAME.

    Raises:
        ConfigError: there is none, or its file is wrong.
    """
    from diffusion_lab.tables import read_table

    names = table_names(folders)
    if name not in names:
        raise ConfigError(f"table={name} must be one of {', '.join(names)}{nearest(name, names)}")
    content = _content(TABLES, name, folders)
    if "like" in content:  # the same rows and columns under another title
        content = _content(TABLES, str(content.pop("like")), folders) | content
    with config_errors(""):
        return read_table(name, content)


def load_scale(name: str, folders: Sequence[Path]) -> Scale:
    """The scale of that name.

    Raises:
        ConfigError: there is none, or its file is wrong.
    """
    from diffusion_lab.tables import read_scale

    names = sorted(path.stem for folder in folders for path in (folder / SCALES).glob("*.yaml"))
    if name not in names:
        raise ConfigError(f"scale={name} must be one of {', '.join(names)}{nearest(name, names)}")
    with config_errors(""):
        return read_scale(name, _content(SCALES, name, folders))


def _content(kind: str, name: str, folders: Sequence[Path]) -> dict[str, Any]:
    from omegaconf import OmegaConf

    path = next(folder / kind / f"{name}.yaml" for folder in folders if (folder / kind / f"{name}.yaml").is_file())
    content = OmegaConf.to_container(OmegaConf.load(path))
    if not isinstance(content, dict):
        raise ConfigError(f"{kind}={name} must be a yaml file of keys; see conf/{kind}")
    return {str(key): value for key, value in content.items()}


def _settings(words: Sequence[str]) -> dict[str, str]:
    for word in words:
        if "=" not in word or word.startswith("-"):
            raise ConfigError(f"{word} must be a setting, key=value, or an option; see diffusion-lab reproduce --help")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _seeds(text: str | None) -> list[int]:
    try:
        seeds = [int(word) for word in text.split(",")] if text else []
    except ValueError:
        seeds = [-1]
    if any(seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds={text} must be different integers >= 0; use e.g. --seeds 0,1,2")
    return seeds


def _chosen(rows: Sequence[Row], only: str | None) -> list[Row]:
    names = [row.name for row in rows]
    chosen = only.split(",") if only else names
    for name in chosen:
        if name not in names:
            raise ConfigError(f"only={name} must be a row; use one of {', '.join(names)}{nearest(name, names)}")
    return [row for row in rows if row.name in chosen]


def _list(config_dir: str | None) -> int:
    """Print all tables by kind, and the scales."""
    from diffusion_lab.tables.table import KINDS

    folders = conf_folders(config_dir)
    tables = [load_table(name, folders) for name in table_names(folders)]
    width = max(len(table.name) for table in tables) + 2
    for kind in KINDS:
        print(f"{kind}s")
        for table in (one for one in tables if one.kind == kind):
            print(f"  {table.name:<{width}}{table.says}")
    print("scales")
    for path in _scale_files(folders):
        print(f"  {path.stem:<{width}}{load_scale(path.stem, folders).says}")
    print("\nnext: diffusion-lab reproduce adaptive_beta/table1 scale=smoke --dry-run")
    return 0


def _scale_files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((folder / SCALES).glob("*.yaml"))
