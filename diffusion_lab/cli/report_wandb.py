"""The verdicts of a report in Weights & Biases: a run of its own, in the project and the group of the runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diffusion_lab.reports import Report

FOLDER = "report"  # in the folder of the runs; the id in it makes the next report of the folder the same W&B run


def log_report(report: Report, command: str) -> None:
    """Log the tables, one or more, and their verdicts as the summary; without a key or a network the run is kept on
    disk.

    Raises:
        ValueError: runs of several projects, a name that W&B does not accept, or a folder that must not be written to.
    """
    from diffusion_lab.cli.dashboard_source import wandb_places
    from diffusion_lab.cli.output_folders import check_places
    from diffusion_lab.loggers import WandbLogger
    from diffusion_lab.reports.pages.verdict_values import verdict_values

    top = report.folder.path
    check_places("report", top, [top / FOLDER])
    project, groups = wandb_places(top, [run for run in report.folder.runs if run.step > 0])
    group = groups[0] if len(groups) == 1 else None
    logger = WandbLogger(top / FOLDER, project, group, "report", name=f"report of {top.resolve().name}")
    with _notices():
        logger.log_hyperparams({"command": command})
        texts = {part.section.title: part.table for part in report.parts}
        tables = {
            f"comparison: {title}": (table.titles, [[cell.text for cell in line] for line in table.lines])
            for title, table in texts.items()
        }
        logger.log_summary(verdict_values(report), tables)
        logger.finalize("success")


@contextmanager
def _notices() -> Iterator[None]:
    """Print what the logger says of the place of the run: a report logs nothing else."""
    log, shown = logging.getLogger("diffusion_lab.loggers.wandb"), logging.StreamHandler(sys.stdout)
    level = log.level
    log.addHandler(shown)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(shown)
        log.setLevel(level)
