"""A run as data: its configuration, its values over training, and how it ended. Its status is one word:

done         result.json says that it is done
failed       it ended with an error, or was killed and the launcher recorded that
interrupted  a signal stopped it after a checkpoint
pruned       it was ended early, because most runs of its sweep were better
running      a process holds the lock of its folder
lost         it has started and has no result, and no process holds its lock: it was killed
damaged      a file cannot be read, or run.json or result.json has an entry of a wrong type, so it is not used
unreported   its files can be read, and a fault of this package ends a report of it (`reports.failing_runs`)
pending      it is listed in sweep.json and has not started
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from diffusion_lab.runs.curve import Column, Curve, finite
from diffusion_lab.runs.digest import read_columns
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import EVALUATIONS, LOG, SAMPLES, TIMING, metric_key, step_of
from diffusion_lab.runs.shell_commands import command
from diffusion_lab.runs.signature import config_dirs_of

STATUSES = ("done", "failed", "damaged", "unreported", "interrupted", "pruned", "running", "lost", "pending")


@dataclass(frozen=True)
class Run:
    """One run folder.

    Args:
        folder: the folder.
        status: one of `STATUSES`.
        overrides: overrides on the command line, from run.json or else sweep.json.
        info: run.json, {} if it is missing.
        result: result.json, {} if it is missing.
        faults: what is wrong with its files; those entries are left out of them.
        top: the folder that the user named, below which no link is followed; None: `folder`.
    """

    folder: Path
    status: str
    overrides: tuple[str, ...] = ()
    info: dict[str, Any] = field(default_factory=dict, repr=False)
    result: dict[str, Any] = field(default_factory=dict, repr=False)
    faults: tuple[str, ...] = ()
    top: Path | None = field(default=None, repr=False, compare=False)
    _curves: dict[str, Curve] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.folder.name or self.folder.resolve().name

    @property
    def config(self) -> dict[str, Any]:
        config = self.info.get("config")
        return config if isinstance(config, dict) else {}

    @property
    def choices(self) -> dict[str, Any]:
        """Group -> the option that named its part."""
        choices = self.info.get("choices")
        return choices if isinstance(choices, dict) else {}

    @property
    def seed(self) -> int | None:
        seed = self.info.get("seed", self.config.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def group_key(self) -> str:
        """Equal for runs that differ in their seed alone; a run without run.json is a group of its own."""
        return str(self.info.get("group_hash") or self.info.get("config_hash") or self.folder)

    @property
    def max_steps(self) -> int | None:
        steps = self.config.get("max_steps")
        return steps if isinstance(steps, int) else None

    @cached_property
    def step(self) -> int:
        """The last step that is recorded."""
        logged = [*self._columns.get("step", Column()).steps[-1:], *(row["step"] for row in self._timing[-1:])]
        return max([int(finite(self.result.get("step")) or 0), *logged])

    @cached_property
    def _columns(self) -> dict[str, Column]:
        return read_columns(self.folder, self.top or self.folder, self.status == "done")

    @cached_property
    def _timing(self) -> list[dict[str, Any]]:
        return self._lines(TIMING)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        return read_lines(self.folder / name, self.top or self.folder)

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Lines {"step", "name", "value", "protocol"}."""
        lines = self._lines(EVALUATIONS) or self.result.get("evaluations") or []
        return [line for line in lines if isinstance(line, dict) and isinstance(line.get("name"), str)]

    @cached_property
    def log_snr(self) -> np.ndarray | None:
        """(n,) ln SNR at the timesteps round(i (T - 1)/(n - 1)); None if it is not recorded."""
        values = [finite(value) for value in self.info.get("log_snr") or []]
        return None if len(values) < 2 or None in values else np.array(values, np.float64)

    @property
    def batch(self) -> int:
        """Images per optimizer step."""
        return int(finite(self.info.get("global_batch")) or finite(self.config.get("batch_size")) or 1)

    def curve(self, key: str) -> Curve:
        """The values of a key of metrics.jsonl over training."""
        if key not in self._curves:
            self._curves[key] = self._columns.get(key, Column()).curve(self.batch)
        return self._curves[key]

    def keys(self, prefix: str) -> list[str]:
        """Keys of metrics.jsonl that start with `prefix`, in the order in which they were first logged."""
        return [key for key in self._columns if key.startswith(prefix)]

    @cached_property
    def metric_names(self) -> list[str]:
        """Names of the evaluation metrics, e.g. fd1k_digits."""
        keys = [*self._columns, *(self.result.get("metrics") or {})]
        names = [key.removeprefix("metrics/") for key in keys if key.startswith("metrics/")]
        return list(dict.fromkeys(names + [line["name"] for line in self.evaluations]))

    def last(self, name: str) -> float | None:
        """Value of a metric (fd1k_digits) or of a logged key (val/loss) at its last step; None if there is none."""
        key = metric_key(name)
        values = self.curve(key).values
        if values.ndim == 1 and len(values):
            return finite(float(values[-1]))
        at_end = finite((self.result.get("metrics") or {}).get(key))
        lines = self._lines_of(name)
        return finite(lines[-1].get("value")) if at_end is None and lines else at_end

    def step_of_last(self, name: str) -> int | None:
        """The step of `last(name)`; None if it is not recorded."""
        steps = self.curve(metric_key(name)).steps
        lines = self._lines_of(name)
        found = int(steps[-1]) if len(steps) else lines[-1].get("step") if lines else None
        return found if isinstance(found, int) else None

    def is_not_finite(self, name: str) -> bool:
        """Whether a metric was measured and its newest value is NaN or infinite."""
        return self.last(name) is None and self.step_of_last(name) is not None

    def protocol(self, name: str) -> dict[str, Any]:
        """How the newest value of a metric was measured."""
        protocol = self._line_of_last(name).get("protocol")
        return protocol if isinstance(protocol, dict) else {}

    def interval(self, name: str) -> tuple[float, float] | None:
        """The interval of the newest value of a metric; None if none is recorded."""
        ends = self._line_of_last(name).get("interval")
        low, high = map(finite, ends) if isinstance(ends, list) and len(ends) == 2 else (None, None)
        return None if low is None or high is None else (low, high)

    def _line_of_last(self, name: str) -> dict[str, Any]:
        """Of the lines with the name of a metric, the last one with its newest value; {} without one."""
        value = self.last(name)
        lines = [line for line in self._lines_of(name) if line.get("value") == value]
        return lines[-1] if lines else {}

    def _lines_of(self, name: str) -> list[dict[str, Any]]:
        """The lines of a metric by step, those of one step as they were written: `evaluate` may have measured an
        earlier checkpoint after a later one."""
        lines = [line for line in self.evaluations if line["name"] == name]
        return sorted(lines, key=lambda line: line["step"] if isinstance(line.get("step"), int) else -1)

    def better(self, name: str) -> str | None:
        """Which direction of a metric is better, "lower", "higher" or "neither"; None if it is not recorded."""
        return self._recorded(name, "better", "lower|higher|neither")

    def compared_by(self, name: str) -> Literal["ratio", "difference"] | None:
        """Whether two values of a metric are compared by their ratio or difference; None if it is not recorded."""
        word = self._recorded(name, "compared_by", "ratio|difference")
        return None if word is None else "ratio" if word == "ratio" else "difference"

    def units(self, name: str) -> str | None:
        """Units of a metric; None if none that could be a unit are recorded."""
        return self._recorded(name, "units", r"[\w/%. -]{1,20}")

    def _recorded(self, name: str, key: str, pattern: str) -> str | None:
        """The newest usable value of a key beside the values of a metric."""
        values = [line.get(key) for line in reversed(self.evaluations) if line["name"] == name]
        return next((value for value in values if isinstance(value, str) and re.fullmatch(pattern, value)), None)

    @property
    def seconds(self) -> float | None:
        """Training time in seconds, summed over resumes."""
        return finite(self.result.get("seconds")) or next(
            (finite(row.get("seconds")) for row in reversed(self._timing)), None
        )

    @cached_property
    def training_clock(self) -> Clock | None:
        """Seconds of training by step, without evaluations; None if the run did not record them."""
        return clock(self._timing, "training_seconds")

    @property
    def images_per_second(self) -> float | None:
        """Images over training time; if one of them is missing, the rate that the run recorded."""
        last = self._timing[-1] if self._timing else {}
        images, seconds = finite(last.get("images")), finite(last.get("seconds"))
        if images and seconds:
            return images / seconds
        return finite(self.result.get("images_per_second")) or finite(last.get("images_per_second"))

    @property
    def memory_mb(self) -> float | None:
        """Peak memory in MB, of tensors on a GPU or of the process on a CPU."""
        return max((mb for row in self._timing if (mb := finite(row.get("memory_mb"))) is not None), default=None)

    def samples(self) -> dict[int, Path]:
        """step -> PNG of the fixed-latent sample grid, by step."""
        paths = {step_of(path.name, ".png"): path for path in (self.folder / SAMPLES).glob("*.png")}
        return {step: paths[step] for step in sorted(step for step in paths if step is not None)}

    @property
    def log(self) -> Path | None:
        path = self.folder / LOG
        return path if path.is_file() else None

    @property
    def cause(self) -> str:
        """Why the run is not done, in one line."""
        error = self.result.get("error")
        if self.status in ("failed", "pruned") and isinstance(error, dict):
            message = " ".join(str(error.get("message") or "").split())
            if self.status == "pruned":
                return message
            return f"{error.get('type') or 'error'}: {message}" if message else str(error.get("type") or "error")
        return {
            "failed": "no error was recorded; see its log",
            "interrupted": "stopped by a signal after a checkpoint; the same command continues it",
            "pruned": "most runs of its sweep were better",
            "running": "a process is training it",
            "lost": "ended without a result (killed, or the machine went down); the same command continues it",
            "damaged": f"{'; '.join(self.faults)}; restore a copy, or remove the file and run it again",
            "unreported": "; ".join(self.faults),
            "pending": "not started",
        }.get(self.status, "")

    @property
    def command(self) -> str:
        """The command that repeats this run alone, with the --config-dir of a run of the user's own."""
        if self.overrides:
            own = [word for folder in config_dirs_of(self.info) for word in ("--config-dir", folder)]
            return command("train", *own, *self.overrides)
        return str(self.info.get("command") or "diffusion-lab train")


@dataclass(frozen=True)
class RunFolder:
    """All runs below a folder, in the order of their sweeps.

    Args:
        path: the folder.
        runs: all of them.
        sweeps: folder of a sweep -> the commands that it was started with, oldest first.
        questions: folder of a sweep -> what it is to decide, if it has recorded that.
    """

    path: Path
    runs: tuple[Run, ...]
    sweeps: dict[Path, tuple[str, ...]] = field(default_factory=dict)
    questions: dict[Path, dict[str, Any]] = field(default_factory=dict)

    def is_of_race(self, run: Run) -> bool:
        """Whether the number of seeds of the run's method followed from its values."""
        return self.questions.get(run.folder.parent, {}).get("stopping") == "race"

    @property
    def commands(self) -> list[str]:
        """The commands of all sweeps, without duplicates."""
        return list(dict.fromkeys(command for commands in self.sweeps.values() for command in commands))

    @property
    def counts(self) -> dict[str, int]:
        """status -> number of runs, without zeros."""
        return _counts(self.runs)

    @property
    def unfinished(self) -> list[Run]:
        return [run for run in self.runs if run.status != "done"]

    def relative(self, path: Path) -> str:
        """The path relative to the folder of the report."""
        return os.path.relpath(path, self.path)


def status_words(runs: Sequence[Run]) -> str:
    """`2 done, 1 failed`."""
    return ", ".join(f"{count} {status}" for status, count in _counts(runs).items())


def _counts(runs: Sequence[Run]) -> dict[str, int]:
    counts = Counter(run.status for run in runs)
    return {status: counts[status] for status in STATUSES if counts[status]}


class Clock(NamedTuple):
    """The time at which steps were done.

    Fields:
        steps: (n,) int64, increasing, > 0.
        seconds: (n,) float64, not decreasing.
    """

    steps: np.ndarray
    seconds: np.ndarray

    def at(self, steps: np.ndarray) -> np.ndarray:
        """(m,) seconds at steps (m,): interpolated linearly from 0 at step 0; after the last line at the mean rate."""
        between = np.interp(steps, np.append(0, self.steps), np.append(0.0, self.seconds))
        return between + np.maximum(steps - self.steps[-1], 0) * self.seconds[-1] / self.steps[-1]


def clock(rows: Sequence[dict[str, Any]], key: str) -> Clock | None:
    """The clock that is recorded under `key`; None unless the last row has it."""
    if not rows or key not in rows[-1]:
        return None
    column = Column()
    for row in rows:
        if key in row:
            column.add(row["step"], math.nan, row[key])
    points = column.curve(batch=1)
    used = (points.steps > 0) & np.isfinite(points.values) if points.values.ndim == 1 else np.zeros(0, bool)
    if not used.any():
        return None
    return Clock(points.steps[used], np.maximum.accumulate(points.values[used]))
