"""Which runs had the same images and labels: others are neither averaged nor paired.

What the data of a run were is in its run.json, by fingerprints. The arguments of the source, such as the folder from
which they were read, are not compared: a copy of a folder is the same data. A run that has no such entry is older than
it; if all other runs of its source had the same data, it is taken as one of them, else its source is all that is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diffusion_lab.runs.run import Run

UNKNOWN = "data not recorded"
PARTS = ("shape", "train", "test", "classes")


def data_keys(runs: Sequence[Run]) -> dict[Path, str]:
    """Folder of a run -> a text that is equal for runs with the same data; "" if only its source is known."""
    known: dict[str, set[str]] = {}
    for run in runs:
        known.setdefault(_source(run), set()).add(_digest(run.info.get("data")))
    keys = {}
    for run in runs:
        recorded, others = _digest(run.info.get("data")), known[_source(run)] - {""}
        keys[run.folder] = recorded or (next(iter(others)) if len(others) == 1 else "")
    return keys


def data_words(runs: Sequence[Run]) -> dict[Path, str]:
    """Folder of a run -> which data it had, e.g. "40+4 images 1a2b3c"; "" if those of its data set all had the same."""
    sets: dict[str, list[Run]] = {}
    for run in runs:
        sets.setdefault(_source(run), []).append(run)
    words = {}
    for same in sets.values():
        of = {run.folder: _word(run.info.get("data")) for run in same}
        several = len(set(of.values()) - {UNKNOWN}) > 1
        words |= of if several else dict.fromkeys(of, "")
    return words


def data_notes(runs: Sequence[Run]) -> list[str]:
    """One sentence if runs of one data set had different data."""
    counts: dict[str, int] = {}
    for word in filter(None, data_words(runs).values()):
        counts[word] = counts.get(word, 0) + 1
    if not counts:
        return []
    listed = ", ".join(f"{n} {'run' if n == 1 else 'runs'} {word}" for word, n in counts.items())
    return [f"The images of a data set changed between runs ({listed}): other data are neither averaged nor paired."]


def _word(data: Any) -> str:
    digest = _digest(data)
    if not digest:
        return UNKNOWN
    numbers = [data[split].get("images") if isinstance(data.get(split), dict) else None for split in ("train", "test")]
    counted = "+".join(str(n) for n in numbers if isinstance(n, int))
    return f"{counted} images {digest[:6]}".strip()


def _digest(data: Any) -> str:
    """A hash of the entry of a run.json; "" if it is none."""
    if not isinstance(data, dict) or not any(data.get(part) for part in PARTS):
        return ""
    text = json.dumps([data.get(part) for part in PARTS], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _source(run: Run) -> str:
    dataset = run.config.get("dataset")
    source = run.info.get("dataset") or (dataset.get("source") if isinstance(dataset, dict) else None)
    return json.dumps(source, sort_keys=True, default=str)
