"""The figures of the report. Each is a function of the groups, and None if the runs have no data for it."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.rows import Table
from diffusion_lab.reports.figures.along import along_figure
from diffusion_lab.reports.figures.base import Figure
from diffusion_lab.reports.figures.curves import against_time, other_numbers, quality_over_training
from diffusion_lab.reports.figures.losses import loss_by_log_snr, loss_by_timestep, loss_over_training
from diffusion_lab.reports.figures.method_logs import adversarial_losses, heads
from diffusion_lab.reports.figures.ratios import effects, effects_over_training
from diffusion_lab.reports.figures.table_rows import cost
from diffusion_lab.reports.figures.timesteps import drawn, drawn_over_training, effective_weights

__all__ = ["Figure", "adversarial_losses", "against_time", "along_figure", "cost", "drawn", "drawn_over_training"]
__all__ += ["effective_weights", "effects", "effects_over_training", "heads", "loss_by_log_snr", "loss_by_timestep"]
__all__ += ["loss_over_training", "of_section", "other_numbers", "quality_over_training"]


def of_section(table: Table, groups: Sequence[Group]) -> list[Figure]:
    """The figures of one section of the report for which the runs have data, in their order on the page; `groups` are
    those of the table that are drawn, from `comparison.shown`."""
    metric = table.metric
    made = [effects(table.of(groups)), effects_over_training(table, groups)]
    groups = table.without_diverged(groups)
    made += [
        quality_over_training(groups, metric),
        against_time(groups, metric),
        loss_by_timestep(groups),
        loss_by_log_snr(groups),
        loss_over_training(groups),
        adversarial_losses(groups),
        drawn(groups),
        drawn_over_training(groups),
        effective_weights(groups),
        heads(groups),
        other_numbers(groups),
        cost(groups),
    ]
    return [figure for figure in made if figure is not None]
