"""The verdicts of a report in Weights & Biases: a run of its own, in the project and the group of the runs.

Its summary has

    METRIC/ROW/ratio, or METRIC/ROW/difference      the effect of the question's estimand
    METRIC/ROW/low, METRIC/ROW/high                 its interval for all rows together, from 3 seeds on
    METRIC/ROW/n                                    seeds that the row and the baseline have in common
    METRIC/ROW/verdict                              better, worse, equal, not decided, identical, no claim
    METRIC/answer, METRIC/baseline, METRIC/estimand, METRIC/margin

With several sections METRIC is the title of the section. A row that cannot be compared, or whose loss does not decide,
has no entry.
"""

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

    top = report.folder.path
    check_places("report", top, [top / FOLDER])
    project, groups = wandb_places(top, [run for run in report.folder.runs if run.step > 0])
    group = groups[0] if len(groups) == 1 else None
    logger = WandbLogger(top / FOLDER, project, group, "report", name=f"report of {top.resolve().name}")
    with _notices():
        logger.log_hyperparams({"command": command})
        tables = {
            f"comparison: {title}": (table.titles, [[cell.text for cell in line] for line in table.lines])
            for title, table in report.tables.items()
        }
        logger.log_summary(_verdict_values(report), tables)
        logger.finalize("success")


def _verdict_values(report: Report) -> dict[str, float | str]:
    """Key -> value of all rows of all sections, as the module's docstring has them."""
    from diffusion_lab.reports.comparison.answer import answer
    from diffusion_lab.reports.comparison.rows import tabulate

    found: dict[str, float | str] = {}
    for part in report.parts:
        groups, metric = part.section.groups, part.section.metric
        table, name = tabulate(groups, metric, part.section.question), metric
        if len(report.parts) > 1:
            name = part.section.title
        for row in table.rows:
            if row.verdict is None:
                continue
            said = row.verdict
            values: dict[str, float | str] = {table.scale: said.size, "n": said.n, "verdict": said.word}
            if said.interval and said.word != "identical":
                values |= dict(zip(("low", "high"), said.interval, strict=True))
            found |= {f"{name}/{row.group.label}/{key}": value for key, value in values.items()}
        about = {"answer": answer(table), "baseline": table.base.label, "estimand": table.estimand}
        found |= {f"{name}/{key}": value for key, value in about.items()}
        found[f"{name}/margin"] = table.question.margin
    return found


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
