"""Placeholder by the lead so that training can be tried; helper B replaces it."""
from pathlib import Path
def log_values(trainer, values):
    if not trainer.is_global_zero: return
    full = {"images": trainer.global_step * trainer.datamodule.batch_size} | values
    for logger in trainer.loggers:
        logger.log_metrics(full, trainer.global_step)
def log_image(trainer, key, path): pass
