"""`diffusion-lab train dry_run=true`: what would run and its cost. Nothing is written to the run folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig
from rich.table import Table

from diffusion_lab.cli.cost.cost import Cost, cost_of
from diffusion_lab.cli.cost.counts import rows_per_pass
from diffusion_lab.cli.cost.devices import GPUS
from diffusion_lab.cli.processes import world_size
from diffusion_lab.cli.question import question_of, words
from diffusion_lab.cli.validate import missing_here, seedless
from diffusion_lab.printable import make_console
from diffusion_lab.progress import duration, waiting

if TYPE_CHECKING:
    from rich.console import Console

BUDGET_S = 10.0  # for measurements, over all methods of a sweep


def dry_run(cfgs: list[DictConfig], folders: list[Path]) -> None:
    """Print the cost of one run or of a sweep, whose jobs that differ in seeds alone are measured once."""
    costs, missing = costs_of(cfgs)
    console = make_console()
    if len(cfgs) > 1:
        head = ("job", "parameters", "images/s", "memory", "time", "checkpoints", "basis")
        print_rows(console, head, list(map(_job_row, cfgs, costs, folders)))
    else:
        print_rows(console, ("", ""), _rows(cfgs[0], costs[0], folders[0]))
    for text in missing:
        console.print(f"missing here: {text}", soft_wrap=True)
    if len(cfgs) > 1:
        console.print(f"question: {words(question_of(cfgs))}", soft_wrap=True)
    console.print(_summary(costs), soft_wrap=True)


def costs_of(cfgs: list[DictConfig]) -> tuple[list[Cost], list[str]]:
    """The cost of each job, and what this machine lacks for them."""
    groups = [seedless(cfg) for cfg in cfgs]
    distinct = {group: cfg for group, cfg in zip(groups, cfgs, strict=True)}
    missing = {group: list(map(str, missing_here(cfg))) for group, cfg in distinct.items()}
    budget = BUDGET_S / len(distinct)
    with waiting("timing some steps"):
        cost = {group: cost_of(cfg, budget, bool(missing[group])) for group, cfg in distinct.items()}
    return [cost[group] for group in groups], list(dict.fromkeys(text for some in missing.values() for text in some))


def _summary(costs: list[Cost]) -> str:
    hours = sum(cost.gpus * cost.seconds for cost in costs) / 3600
    return (
        f"{len(costs)} job{'s' if len(costs) > 1 else ''}, one after another {duration(sum(c.seconds for c in costs))}"
        f"{f' ({hours:.3g} GPU hours)' if hours else ''}, "
        f"{size(sum(c.disk for c in costs))} of checkpoints; nothing was written"
    )


def _rows(cfg: DictConfig, cost: Cost, folder: Path) -> list[tuple[str, str]]:
    counts = cost.counts
    written = f"{counts.beside.calls:,} network calls and {counts.beside.checkpoints} checkpoints"
    return [
        ("folder", os.path.relpath(folder)),
        ("parameters", f"{counts.parameters:,}"),
        ("FLOPs per image, forward", f"{counts.forward:.3g}"),
        ("FLOPs per image, forward and backward", f"{counts.training:.3g}"),
        ("FLOPs of the run", f"{cost.counts.flops_of(cfg.max_steps * cfg.batch_size):.3g}"),
        ("batch", describe_batch(cfg)),
        ("memory of one process", _memory(cfg, cost)),
        ("time", cost.basis),
        ("images/s", f"{cfg.batch_size / cost.step:.4g}"),
        ("training", f"{duration(cost.training_seconds)} for {cfg.max_steps} steps"),
        ("evaluation", f"{duration(cost.evaluation_seconds)} for {written}"),
        ("checkpoints", size(cost.disk)),
    ]


def describe_batch(cfg: DictConfig) -> str:
    """How the global batch is split, e.g. `64 images = 2 processes x 2 microbatches x 16`."""
    split = f"{world_size(cfg)} processes x {cfg.accumulate} microbatches x {rows_per_pass(cfg)}"
    return f"{cfg.batch_size} images = {split}"


def _memory(cfg: DictConfig, cost: Cost) -> str:
    """The peak with its parts; on an absent GPU, whether it fits."""
    memory = cost.memory
    parts = f"{size(memory.peak)} = {size(memory.state)} of weights, gradients, optimizer, averages and images + "
    parts += f"{size(memory.beside)} of {memory.largest}, beside the libraries"
    if not cost.gpus or f" {cfg.cost.device} " not in cost.basis:
        return parts
    room = 1e9 * GPUS[cfg.cost.device].memory
    more = f"does not fit; accumulate={2 * cfg.accumulate} or more devices take less"
    fits = "fits" if memory.peak < 0.95 * room else more
    return f"{parts}; one {cfg.cost.device} has {size(room)}: it {fits}"


def _job_row(cfg: DictConfig, cost: Cost, folder: Path) -> tuple[str, ...]:
    numbers = (f"{cost.counts.parameters:,}", f"{cfg.batch_size / cost.step:.4g}", size(cost.memory.peak))
    return (folder.name, *numbers, duration(cost.seconds), size(cost.disk), cost.basis)


def print_rows(console: Console, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """A table on a terminal; elsewhere one line per row with cells separated by tabs, so that nothing is cut."""
    if not console.is_terminal:
        for row in [head, *rows] if any(head) else rows:
            print("\t".join(row))
        return
    longest = max(len(row[0]) for row in rows)
    table = Table(show_header=any(head))
    # Names that are cut cannot be told apart: they are folded, and have up to half of the width.
    table.add_column(head[0], overflow="fold", min_width=min(longest, console.width // 2))
    for name in head[1:]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def size(count: float) -> str:
    """1.2 kB, 34.5 MB, 1.20 GB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"
