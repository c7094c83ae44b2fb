"""The functions that callbacks use to log, and the base class of the loggers.

The axis of a value is `trainer.global_step`, the number of finished optimizer steps; `images`, the number of training
images seen, is logged with it. Clock times and epochs are never logged.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger

Values = Mapping[str, float | Sequence[float]]


class RunLogger(Logger):
    """A Lightning logger that writes into the run folder and also takes lists, pictures and curves.

    Pictures and curves are ignored unless a subclass shows them.

    Args:
        directory: the run folder; made at the first write.
    """

    def __init__(self, directory: str | Path) -> None:
        super().__init__()
        self.directory = Path(directory)

    @property
    def save_dir(self) -> str:
        return str(self.directory)

    @property
    def name(self) -> str:
        return ""  # a run has one folder, not one per name and version

    @property
    def version(self) -> str:
        return ""

    def log_values(self, values: Values, step: int) -> None:
        """Log numbers and lists of numbers; a list becomes one scalar per entry unless a subclass keeps it."""
        self.log_metrics(flatten(values), step)

    def log_picture(self, key: str, path: Path, step: int) -> None:
        """Log an image file."""

    def log_curve(self, key: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], step: int) -> None:
        """Log lines over a common x, by label."""

    def cut(self, step: int) -> None:
        """Drop the values after `step`, from which a resumed run continues."""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Log the configuration, plain values; ignored by default, because run.json contains it."""


def log_values(trainer: Trainer, values: Values) -> None:
    """Log numbers and lists of numbers at the current step, with the images seen, to all loggers; first process only.

    A logger that is not a `RunLogger` gets a list `key` as scalars `key/00`, `key/01`, ...
    """
    if not trainer.is_global_zero:
        return
    step, values = trainer.global_step, images_seen(trainer) | dict(values)
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_values(values, step)
        else:
            logger.log_metrics(flatten(values), step)


def log_image(trainer: Trainer, key: str, path: str | Path) -> None:
    """Show an image file in the loggers that show pictures; first process only."""
    for logger in _own(trainer):
        logger.log_picture(key, Path(path), trainer.global_step)


def log_curve(trainer: Trainer, key: str, x: Sequence[float], lines: Mapping[str, Sequence[float]]) -> None:
    """Draw lines over x, by label, in the loggers that show pictures; first process only.

    Raises:
        ValueError: a line does not have one value for each x.
    """
    for label, y in lines.items():
        if len(y) != len(x):
            raise ValueError(f"lines[{label!r}] has {len(y)} values and must have one for each of the {len(x)} of x")
    for logger in _own(trainer):
        logger.log_curve(key, x, lines, trainer.global_step)


def log_config(trainer: Trainer, config: dict[str, Any]) -> None:
    """Log the run's configuration, a dict of plain values, to all loggers; first process only."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_hyperparams(config)


def images_seen(trainer: Trainer) -> dict[str, int]:
    """{"images": training images seen}, or {} if the data module has no `batch_size`."""
    batch_size = getattr(getattr(trainer, "datamodule", None), "batch_size", None)
    return {} if batch_size is None else {"images": trainer.global_step * batch_size}


def flatten(values: Values) -> dict[str, float]:
    """{"a": 1, "b": [2, 3]} -> {"a": 1, "b/00": 2, "b/01": 3}; indices are zero-padded, so that names sort."""
    flat: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Sequence):
            digits = max(2, len(str(len(value) - 1)))
            flat |= {f"{key}/{i:0{digits}d}": entry for i, entry in enumerate(value)}
        else:
            flat[key] = value
    return flat


def _own(trainer: Trainer) -> list[RunLogger]:
    loggers = trainer.loggers if trainer.is_global_zero else []
    return [logger for logger in loggers if isinstance(logger, RunLogger)]
