"""Where a run's values go: always metrics.jsonl, and on request Weights & Biases and TensorBoard as mirrors of it."""

from diffusion_lab.loggers.base import RunLogger, log_config, log_curve, log_image, log_values
from diffusion_lab.loggers.jsonl import JsonlLogger
from diffusion_lab.loggers.tensorboard import TensorBoardLogger
from diffusion_lab.loggers.wandb import WandbLogger

__all__ = [
    "JsonlLogger",
    "RunLogger",
    "TensorBoardLogger",
    "WandbLogger",
    "log_config",
    "log_curve",
    "log_image",
    "log_values",
]
