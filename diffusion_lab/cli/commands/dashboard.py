"""`diffusion-lab dashboard PAPER|FOLDER`: a W&B workspace and sweeps as files, and in W&B if there is an account."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from diffusion_lab.cli.command_line import parsed, seeds_of
from diffusion_lab.cli.errors import EXIT_FAILED, refuse
from diffusion_lab.printable import one_line
from diffusion_lab.progress import waiting
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from diffusion_lab.cli.dashboard_source import DashboardSource
    from diffusion_lab.dashboards import Workspace

MOST_LINES = 10  # sweeps that are listed one by one


def main(argv: list[str]) -> int:
    """Write the files and upload the workspace; returns 0, 1 if W&B refused it, or 2 if there is nothing to show."""
    options = parsed(_parser(), argv)
    from diffusion_lab.cli.dashboard_source import source_of
    from diffusion_lab.cli.output_folders import check_places, writable
    from diffusion_lab.dashboards import Workspace, check_installed, sections, write_specification
    from diffusion_lab.runs.wandb_names import check_project

    try:
        check_installed()
        seeds = seeds_of(options.seeds)
        for key in ("project", "entity"):  # before the jobs of tables are composed
            if typed := getattr(options, key):
                check_project(key, typed)
        if options.out:  # before the jobs of tables are composed; after that there may be nothing to write
            writable("out", Path(options.out), make=False)
        with waiting("collecting the runs and what they log"):
            source = source_of(options.target, options.words, seeds)
        project = check_project("project", options.project or source.project)
        workspace = Workspace(source.name, project, source.selection, sections(source.logged))
        out = writable("out", Path(options.out)) if options.out else source.out
        if not options.out and Path(options.target).is_dir():
            check_places("dashboard", Path(options.target), [out])
        print(f"workspace: {write_specification(out / 'workspace.json', workspace)}")
        sweeps = _write_sweeps(out, source, project)
        if len(sweeps) > MOST_LINES:
            print(f"sweeps: {len(sweeps)} files, {out / 'sweep*.yaml'}")
        for path in sweeps if len(sweeps) <= MOST_LINES else ():
            print(one_line(f"sweep: {path}"))
    except (ValueError, FileNotFoundError) as error:
        return refuse(error)
    except OSError as error:
        place = options.out or options.target
        return refuse(f"out={place} must be a folder that can be written ({error.strerror})")
    print(_described(workspace))
    if source.mirrored == 0:
        print(
            "note: none of these runs was logged to W&B, so the panels stay empty; train with logger=wandb, and upload "
            f"runs without a connection with: wandb sync {shlex.quote(str(Path(options.target)))}/*/wandb/offline-run-*"
        )
    return _upload(workspace, options, command("dashboard", *argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab dashboard",
        description="A Weights & Biases workspace for runs with logger=wandb: quality against images and training "
        "time, loss by timestep and by log SNR, density of timesteps, samples, cost; and W&B sweeps that repeat the "
        "runs. Both are written to files; if there is an API key, the workspace is also made in W&B.",
    )
    parser.add_argument("target", metavar="PAPER|FOLDER", help="a paper, e.g. adaptive_beta, or a folder of runs")
    parser.add_argument(
        "words", nargs="*", metavar="key=value", help="of a paper: scale=smoke|mini|small|paper, and further settings"
    )
    parser.add_argument("--seeds", metavar="0,1,2", help="seeds of a paper's runs; default: the scale's")
    parser.add_argument("--project", metavar="NAME", help="W&B project; default: that of the runs, or diffusion-lab")
    parser.add_argument("--entity", metavar="NAME", help="W&B user or team; default: that of the API key")
    parser.add_argument("--out", metavar="DIR", help="folder for the files; FOLDER/dashboard or dashboards/PAPER")
    parser.add_argument("--offline", action="store_true", help="write the files only")
    return parser


def _write_sweeps(out: Path, source: DashboardSource, project: str) -> list[Path]:
    """One file per grid of jobs: sweep.yaml, sweep-TABLE.yaml, and sweep-2.yaml if one grid is not enough. Those of an
    earlier call are removed."""
    from diffusion_lab.dashboards import SWEEP_HEAD, grids, sweep_file
    from diffusion_lab.files import write_whole
    from diffusion_lab.files_inside import NotInside, read_inside

    for path in out.glob("sweep*.yaml"):
        with suppress(NotInside):  # then it is no file that this command has written
            if read_inside(path).decode(errors="replace").startswith(SWEEP_HEAD):
                path.unlink()
    written, ranked = [], {name: word for name, word in source.logged.better.items() if word != "neither"}
    metric = next(iter(ranked.items()), None)
    for table, jobs in source.jobs.items():
        for i, grid in enumerate(grids(jobs), 1):
            words = [table, *([str(i)] if i > 1 else [])]
            path = out / ("-".join(["sweep", *filter(None, words)]) + ".yaml")
            name = " ".join([source.name, *filter(None, words)])
            write_whole(path, sweep_file(grid, name, project, metric, source.config_dirs).encode())
            written.append(path)
    return written


def _described(workspace: Workspace) -> str:
    selection = workspace.selection
    chosen = [*selection.tags, *([f"group {' or '.join(selection.groups)}"] if selection.groups else [])]
    names = ", ".join(f"{section.name.lower()} ({len(section.panels)})" for section in workspace.sections)
    return f"runs: {' and '.join(chosen)}, in project {workspace.project}\npanels: {names}"


def _upload(workspace: Workspace, options: argparse.Namespace, command: str) -> int:
    """Make the workspace in W&B, if there is a key and a network; never asks for anything."""
    import wandb

    if options.offline:
        return 0
    if (mode := os.environ.get("WANDB_MODE")) in ("offline", "dryrun", "disabled"):
        print(f"WANDB_MODE={mode}, so nothing was uploaded; to upload it: WANDB_MODE=online {command}")
        return 0
    wandb.setup(wandb.Settings(silent=True))
    if not wandb.login(prompt=False, verify=False):
        print(f"no API key, so nothing was uploaded; to upload it: wandb login && {command}")
        return 0
    from diffusion_lab.dashboards import upload
    from diffusion_lab.loggers.wandb_service import brief, check_reachable

    try:
        check_reachable(wandb.setup().settings.base_url)
    except OSError as error:
        print(f"no connection to W&B ({brief(error)}), so nothing was uploaded; to upload it: {command}")
        return 0
    try:
        print(f"W&B: {upload(workspace, options.entity or wandb.Api().default_entity or '')}")
    except Exception as error:  # of a network or a server, in many classes
        print(f"failed: W&B refused the workspace ({brief(error)}); to try again: {command}", file=sys.stderr)
        return EXIT_FAILED
    return 0
