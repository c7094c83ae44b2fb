"""`diffusion-lab train dry_run=true`: what would run and what it costs. Nothing is written in the run folder."""

from __future__ import annotations

import os
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from diffusion_lab.cli.config import group_hash
from diffusion_lab.cli.cost import Cost, describe_batch, measure

BUDGET_S = 10.0  # of measured steps, over all methods of a sweep


def dry_run(cfgs: list[DictConfig], folders: list[Path]) -> None:
    """Print the cost of one run, or of a sweep: its jobs that differ only in the seed are measured once.

    Args:
        cfgs: the checked configurations of all jobs.
        folders: their run folders.
    """
    groups = [group_hash(cfg) for cfg in cfgs]
    distinct = {group: cfg for group, cfg in zip(groups, cfgs, strict=True)}
    costs = {group: measure(cfg, BUDGET_S / len(distinct)) for group, cfg in distinct.items()}
    console = Console()
    if len(cfgs) > 1:
        _print(console, ("job", "parameters", "images/s", "time", "checkpoints"), _job_rows(groups, costs, folders))
    else:
        _print(console, ("", ""), _rows(cfgs[0], costs[groups[0]], folders[0]))
    total = [costs[group] for group in groups]
    console.print(
        f"{len(cfgs)} job{'s' if len(cfgs) > 1 else ''}, one after another {duration(sum(c.seconds for c in total))}, "
        f"{size(sum(c.disk for c in total))} of checkpoints; nothing was written",
        soft_wrap=True,
        highlight=False,
    )


def _rows(cfg: DictConfig, cost: Cost, folder: Path) -> list[tuple[str, str]]:
    return [
        ("folder", os.path.relpath(folder)),
        ("parameters", f"{cost.parameters:,}"),
        ("FLOPs per image, forward", f"{cost.forward_flops:.3g}"),
        ("FLOPs per image, forward and backward", f"{cost.training_flops:.3g}"),
        ("batch", describe_batch(cfg)),
        ("images/s", f"{cost.images_per_second:.4g}, over {cost.steps_measured} steps"),
        ("memory of one process", size(cost.memory)),
        ("training", f"{duration(cost.training_seconds)} for {cfg.max_steps} steps"),
        ("evaluation", f"{duration(cost.evaluation_seconds)} for {cost.evaluations} times"),
        ("checkpoints", f"{cost.checkpoints} x {size(cost.checkpoint)} = {size(cost.disk)}"),
    ]


def _job_rows(groups: list[str], costs: dict[str, Cost], folders: list[Path]) -> list[tuple[str, ...]]:
    rows = []
    for group, folder in zip(groups, folders, strict=True):
        cost = costs[group]
        rate, time = f"{cost.images_per_second:.4g}", duration(cost.seconds)
        rows.append((folder.name, f"{cost.parameters:,}", rate, time, size(cost.disk)))
    return rows


def _print(console: Console, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A table on a terminal; elsewhere one row a line, cells apart by tabs, so that nothing is cut."""
    if not console.is_terminal:
        for row in [head, *rows] if any(head) else rows:
            print("\t".join(row))
        return
    table = Table(*head, show_header=any(head))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def duration(seconds: float) -> str:
    """41 s, 3 min 20 s, 2 h 05 min, 3.4 days."""
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    if hours >= 48:
        return f"{seconds / 86400:.1f} days"
    return f"{hours} h {m:02d} min" if hours else f"{m} min {s:02d} s" if m else f"{s} s"


def size(count: float) -> str:
    """1.2 kB, 34.5 MB, 1.20 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"
