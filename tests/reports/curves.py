"""Finished runs whose metric, validation loss and training time over training are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.reports.synthetic import BATCH, write_run

FD = "fd1k_digits"
STEPS = np.arange(1, 9) * 250


def power_law(steps: np.ndarray, factor: float = 1.0, level: float = 1.0) -> np.ndarray:
    """A metric that falls like 100 (factor steps)^-0.5."""
    return level * 100 * (factor * steps) ** -0.5


def write_curves(
    folder: Path,
    method: str,
    seed: int,
    metric: np.ndarray,
    *,
    step_seconds: float | None = 0.1,
    protocol: dict[str, Any] | None = None,
    **changed: Any,
) -> None:
    """A run with `metric` (8,) at `STEPS`, val/loss a tenth of it, and `step_seconds` of training per step."""
    write_run(folder, method, seed, **changed)
    images = [int(step) * BATCH for step in STEPS]
    where = [{"step": int(step), "images": seen} for step, seen in zip(STEPS, images, strict=True)]
    values = [{f"metrics/{FD}": float(v), "val/loss": float(v) / 10} for v in metric]
    measured = {"name": FD, "better": "lower", "protocol": {"samples": 1000, "seed": 0} | (protocol or {})}
    files: dict[str, list[dict[str, Any]]] = {
        "metrics": [one | more for one, more in zip(where, values, strict=True)],
        "evaluations": [one | measured | {"value": float(v)} for one, v in zip(where, metric, strict=True)],
        "timing": [one | _time(one["step"], step_seconds) for one in where],
    }
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _time(step: int, step_seconds: float | None) -> dict[str, float]:
    whole = {"seconds": 1.0 * step}
    return whole if step_seconds is None else whole | {"training_seconds": step * step_seconds}
