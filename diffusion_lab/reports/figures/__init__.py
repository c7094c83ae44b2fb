"""The figures of the report. Each is a function of the groups, and None if the runs have no data for it."""

from diffusion_lab.reports.figures.adversarial_losses import adversarial_losses
from diffusion_lab.reports.figures.base import Figure
from diffusion_lab.reports.figures.density_over_training import drawn_over_training
from diffusion_lab.reports.figures.head_shares import heads
from diffusion_lab.reports.figures.loss_over_noise import loss_by_log_snr
from diffusion_lab.reports.figures.losses import loss_by_timestep, loss_course
from diffusion_lab.reports.figures.paired_differences import differences
from diffusion_lab.reports.figures.quality import course
from diffusion_lab.reports.figures.throughput import cost
from diffusion_lab.reports.figures.time_to_quality import speed_up
from diffusion_lab.reports.figures.timestep_bins import drawn, objective
from diffusion_lab.reports.figures.wall_clock import against_time

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
