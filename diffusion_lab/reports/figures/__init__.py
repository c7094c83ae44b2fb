"""The figures of the report. Each is a function of the groups, and None if the runs have no data for it."""

from diffusion_lab.reports.figures.base import Figure
from diffusion_lab.reports.figures.curves import against_time, course, speed_up
from diffusion_lab.reports.figures.losses import loss_by_log_snr, loss_by_timestep, loss_course
from diffusion_lab.reports.figures.method_logs import adversarial_losses, heads
from diffusion_lab.reports.figures.table_rows import cost, differences
from diffusion_lab.reports.figures.timesteps import drawn, drawn_over_training, objective

__all__ = [
    "Figure",
    "adversarial_losses",
    "against_time",
    "cost",
    "course",
    "differences",
    "drawn",
    "drawn_over_training",
    "heads",
    "loss_by_log_snr",
    "loss_by_timestep",
    "loss_course",
    "objective",
    "speed_up",
]
