"""Reading what a run writes while it writes: JSON files and JSON-lines files, possibly cut off by a kill."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diffusion_lab.files import read_object


class Curve(NamedTuple):
    """One logged key against training.

    Fields:
        steps: (n,) int64, optimizer steps, increasing.
        images: (n,) int64, training images seen.
        values: (n,) float64, or (n, bins) for a key that holds a list; NaN where nothing was measured.
    """

    steps: np.ndarray
    images: np.ndarray
    values: np.ndarray


def read_json(path: Path) -> dict[str, Any]:
    """The object in the file, or {} if it is missing, half-written or not an object."""
    return read_object(path) or {}


def read_checked(path: Path, kinds: Mapping[str, type | tuple[type, ...]]) -> tuple[dict[str, Any], list[str]]:
    """The object in a file without what cannot be used, and a sentence for each such thing.

    Args:
        path: run.json or result.json.
        kinds: entry -> what it may be besides null; other entries are not looked at.
    """
    if not path.exists():
        return {}, []
    content = read_object(path)
    if content is None:
        return {}, [f"{path.name} is no JSON object"]
    wrong = [key for key, kind in kinds.items() if not _is(content.get(key), kind)]
    faults = [f"{path.name} has {key}={_shown(content[key])}, which must be {_words(kinds[key])}" for key in wrong]
    return {key: value for key, value in content.items() if key not in wrong}, faults


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    return value is None or (isinstance(value, kind) and not isinstance(value, bool))


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _words(kind: type | tuple[type, ...]) -> str:
    words = {dict: "an object", list: "a list", str: "text", int: "an integer", float: "a number"}
    return words[kind[-1] if isinstance(kind, tuple) else kind]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON-lines file; a line that a kill cut off is skipped, a missing file is []."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    rows = []
    for line in text.split("\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            rows.append(row)
    return rows


def curve(rows: Iterable[dict[str, Any]], key: str, batch: int) -> Curve:
    """The values of `key`, by step; of two lines with one step the later counts.

    Args:
        rows: lines of metrics.jsonl or timing.jsonl.
        key: what to take; a list must keep its length, else the odd rows are left out.
        batch: images per step, for rows without "images".
    """
    points = {row["step"]: row for row in rows if _usable(row.get(key))}
    steps = sorted(points)
    values = [numbers(points[step][key]) for step in steps]
    if values:
        kept = [i for i, value in enumerate(values) if value.shape == values[-1].shape]
        steps, values = [steps[i] for i in kept], [values[i] for i in kept]
    images = [finite(points[step].get("images")) or step * batch for step in steps]
    return Curve(np.array(steps, np.int64), np.array(images, np.int64), np.array(values, np.float64))


def numbers(value: Any) -> np.ndarray:
    """A number or a list of numbers as float64; null becomes NaN."""
    return np.array(value, dtype=np.float64)


def finite(value: Any) -> float | None:
    """The number as a float, or None if it is missing or not finite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _usable(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(v is None or _is_number(v) for v in value)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
