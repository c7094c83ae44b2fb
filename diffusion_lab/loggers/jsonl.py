"""metrics.jsonl: the record of a run, of which every other logger is a mirror."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.loggers.base import RunLogger, Values


class JsonlLogger(RunLogger):
    """Appends one JSON object a line to `<directory>/metrics.jsonl`: {"step": k, key: number or list of numbers, ...}.

    One line per call, in the order of the calls, handed to the operating system before the call returns. Nothing in it
    depends on a clock: equal runs write equal bytes. Numbers are written so that reading gives the same float64; one
    that is not finite is written as NaN, Infinity or -Infinity, which Python reads and strict JSON does not know.

    Differs from Lightning's CSVLogger, which deletes the earlier rows when a run is resumed.
    """

    filename = "metrics.jsonl"

    @rank_zero_only
    def log_values(self, values: Values, step: int) -> None:
        line = json.dumps({"step": step} | {key: _plain(value) for key, value in values.items()})
        self.directory.mkdir(parents=True, exist_ok=True)
        # Opened for each line: `cut` may replace the file in between, and one write leaves no half line to another.
        with open(self.directory / self.filename, "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """What a LightningModule logs with `self.log`."""
        self.log_values(metrics, 0 if step is None else step)

    @rank_zero_only
    def cut(self, step: int) -> None:
        cut_lines(self.directory / self.filename, step)


def cut_lines(path: Path, step: int) -> None:
    """Drop the lines of later steps, and a half line that a kill left at the end, in one atomic replacement.

    Args:
        path: a file of JSON objects with a "step", one a line; nothing happens when it does not exist.
        step: the last step that stays.

    Raises:
        ValueError: a line other than the last is no JSON object with a step.
    """
    if not path.exists():
        return
    lines = enumerate(_whole_lines(path.read_bytes()), 1)
    kept = [line for number, line in lines if _step(line, f"line {number} of {path.name}") <= step]
    beside = path.with_name(path.name + ".partial")
    with open(beside, "wb") as file:
        file.write(b"".join(kept))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def _plain(value: Any) -> Any:
    """A number or list of numbers, also from a tensor or an array."""
    return value.tolist() if hasattr(value, "tolist") else value


def _whole_lines(content: bytes) -> list[bytes]:
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _step(line: bytes, place: str) -> int:
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{place} must be a JSON object with a step; restore or remove the line") from None
