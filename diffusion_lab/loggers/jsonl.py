"""metrics.jsonl: the record of a run, of which every other logger is a mirror."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.loggers.base import RunLogger, Values
from diffusion_lab.runs.lines import append_lines, cut_lines
from diffusion_lab.runs.names import METRICS


class JsonlLogger(RunLogger):
    """Appends one JSON object a line to `<directory>/metrics.jsonl`: {"step": k, key: number or list of numbers, ...}.

    One line per call, in the order of the calls, handed to the operating system before the call returns. Nothing in it
    depends on a clock: equal runs write equal bytes. Numbers are written so that reading gives the same float64; one
    that is not finite is written as NaN, Infinity or -Infinity, which Python reads and strict JSON does not know.

    Differs from Lightning's CSVLogger, which deletes the earlier rows when a run is resumed.
    """

    @rank_zero_only
    def log_values(self, values: Values, step: int) -> None:
        append_lines(self.directory / METRICS, [{"step": step} | {key: _plain(value) for key, value in values.items()}])

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """What a LightningModule logs with `self.log`."""
        self.log_values(metrics, 0 if step is None else step)

    @rank_zero_only
    def cut(self, step: int) -> None:
        cut_lines(self.directory / METRICS, step)


def _plain(value: Any) -> Any:
    """A number or list of numbers, also from a tensor or an array."""
    return value.tolist() if hasattr(value, "tolist") else value
