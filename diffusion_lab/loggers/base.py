"""The functions that callbacks use to log, the base class of the loggers, and metrics.jsonl, which all others repeat.

The axis of a value is `trainer.global_step`, the number of finished optimizer steps; `images`, the number of training
images seen, is logged with it. `log_values` is for functions of the configuration, which metrics.jsonl records; what is
read from a clock goes to the other loggers only, by `mirror_values`. Epochs are never logged.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.arguments import WrittenPath
from diffusion_lab.runs.lines import append_lines, cut_lines
from diffusion_lab.runs.names import METRICS

Values = Mapping[str, float | Sequence[float]]
Axes = Mapping[str, Sequence[float]]  # name of a coordinate -> its value at each entry of a list


class RunLogger(Logger):
    """A Lightning logger that writes into the run folder and also takes lists, pictures and curves.

    Pictures, curves, tags and directions are ignored unless a subclass shows them.

    Args:
        directory: the run folder; made at the first write.

    Attributes:
        clock: training time in seconds so far, without evaluations, summed over resumes; None until training starts.
    """

    def __init__(self, directory: WrittenPath) -> None:
        super().__init__()
        self.directory = Path(directory)
        self.clock: Callable[[], float] | None = None

    @property
    def save_dir(self) -> str:
        return str(self.directory)

    @property
    def name(self) -> str:
        return ""  # a run has one folder, not one per name and version

    @property
    def version(self) -> str:
        return ""

    def log_values(self, values: Values, step: int, axes: Mapping[str, Axes] | None = None) -> None:
        """Log numbers and lists of numbers; a list becomes one scalar per entry unless a subclass keeps it.

        Args:
            values: key -> number or list of numbers.
            step: number of finished optimizer steps.
            axes: key of a list -> coordinates of its entries.
        """
        self.log_metrics(flatten(values), step)

    def mirror_values(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers that are not functions of the configuration, such as images/s."""
        self.log_metrics(dict(values), step)

    def log_picture(self, key: str, path: Path, step: int) -> None:
        """Log an image file."""

    def log_curve(self, key: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], step: int) -> None:
        """Log lines over a common x, by label."""

    def log_tags(self, tags: Iterable[str]) -> None:
        """Add labels by which runs are selected."""

    def log_directions(self, better: Mapping[str, str]) -> None:
        """State which direction of a value is better: key -> "lower", "higher" or "neither"."""

    def cut(self, step: int) -> None:
        """Drop the values after `step`, from which a resumed run continues."""

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Log the configuration, plain values; ignored by default, because run.json contains it."""


def log_values(trainer: Trainer, values: Values, axes: Mapping[str, Axes] | None = None) -> None:
    """Log numbers and lists of numbers at the current step, with the images seen, to all loggers; first process only.

    On all processes the numbers also become the trainer's `callback_metrics`, which ModelCheckpoint and EarlyStopping
    follow. A logger that is not a `RunLogger` gets a list `key` as scalars `key/00`, `key/01`, ...

    Args:
        trainer: the trainer.
        values: key -> number or list of numbers.
        axes: key of a list -> coordinates of its entries, e.g. {"timestep": [..], "log_snr": [..]}, over which W&B
            draws it; the first is the usual one.
    """
    numbers = {key: torch.tensor(float(value)) for key, value in values.items() if not isinstance(value, Sequence)}
    getattr(trainer, "callback_metrics", {}).update(numbers)
    if not trainer.is_global_zero:
        return
    step, values = trainer.global_step, images_seen(trainer) | dict(values)
    for logger in trainer.loggers:
        if isinstance(logger, RunLogger):
            logger.log_values(values, step, axes)
        else:
            logger.log_metrics(flatten(values), step)


def mirror_values(trainer: Trainer, values: Mapping[str, float]) -> None:
    """Log numbers that metrics.jsonl must not hold, because they are read from a clock or not continued exactly on
    resume, to all other loggers; first process only."""
    if not trainer.is_global_zero:
        return
    for logger in trainer.loggers:
        own = isinstance(logger, RunLogger)
        (logger.mirror_values if own else logger.log_metrics)(images_seen(trainer) | dict(values), trainer.global_step)


def log_directions(trainer: Trainer, better: Mapping[str, str]) -> None:
    """State which direction of each value is better, "lower", "higher" or "neither"; first process only."""
    for logger in _own(trainer):
        logger.log_directions(better)


def set_clock(trainer: Trainer, clock: Callable[[], float]) -> None:
    """Give the loggers the training time in seconds so far, which some log with every value."""
    for logger in _own(trainer):
        logger.clock = clock


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


def log_config(trainer: Trainer, config: dict[str, Any], tags: Sequence[str] = ()) -> None:
    """Log the run's configuration, a dict of plain values, and labels to select it by; first process only."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_hyperparams(config)
    for logger in _own(trainer) if tags else ():
        logger.log_tags(tags)


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


class JsonlLogger(RunLogger):
    """Writes `<directory>/metrics.jsonl`, a JSON object {"step": k, key: number or list of numbers, ...} per line.

    Each call writes one line and flushes it to the operating system. Nothing depends on a clock: equal runs write equal
    bytes. Numbers are written so that reading them gives the same float64; those that are not finite are written as
    null, because JSON has no word for them.

    Differs from Lightning's CSVLogger, which deletes the earlier rows when a run is resumed.
    """

    @rank_zero_only
    def log_values(self, values: Values, step: int, axes: Mapping[str, Axes] | None = None) -> None:
        append_lines(self.directory / METRICS, [{"step": step} | {key: _plain(value) for key, value in values.items()}])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the values of a LightningModule's `self.log`."""
        self.log_values(metrics, 0 if step is None else step)

    def mirror_values(self, values: Mapping[str, float], step: int) -> None:
        """Nothing: the file is a function of the configuration."""

    @rank_zero_only
    def cut(self, step: int) -> None:
        cut_lines(self.directory / METRICS, step)


def _plain(value: Any) -> Any:
    """A number or list of numbers, converted from a tensor or an array if necessary."""
    return value.tolist() if hasattr(value, "tolist") else value
