"""metrics.jsonl: the logged values of a run, which all other loggers repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.loggers.base import Axes, RunLogger, Values
from diffusion_lab.runs.lines import append_lines, cut_lines
from diffusion_lab.runs.names import METRICS


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
