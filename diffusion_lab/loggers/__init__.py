"""Loggers of a run: metrics.jsonl, and optionally Weights & Biases and TensorBoard with the same values."""

from diffusion_lab.loggers.base import (
    JsonlLogger,
    RunLogger,
    log_config,
    log_curve,
    log_directions,
    log_image,
    log_values,
    mirror_values,
    set_clock,
)
from diffusion_lab.loggers.tensorboard import TensorBoardLogger
from diffusion_lab.loggers.wandb import WandbLogger

__all__ = [
    "JsonlLogger", "RunLogger", "TensorBoardLogger", "WandbLogger", "log_config", "log_curve", "log_directions",
    "log_image", "log_values", "mirror_values", "set_clock",
]  # fmt: skip
