"""Runs of one data set whose images or labels were not the same: they are neither averaged nor paired.

What the data of a run were is in its run.json. A run that has no such entry is older than it; if all other runs of its
data set had the same data, it is taken as one of them.
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


def data_words(runs: Sequence[Run]) -> dict[Path, str]:
    """Folder of a run -> which data it had, e.g. "40+4 images 1a2b3c"; "" if those of its data set all had the same."""
    sets: dict[str, list[Run]] = {}
    for run in runs:
        sets.setdefault(json.dumps(run.info.get("dataset"), sort_keys=True, default=str), []).append(run)
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
    if not isinstance(data, dict) or not any(data.get(part) for part in PARTS):
        return UNKNOWN
    text = json.dumps([data.get(part) for part in PARTS], sort_keys=True, default=str)
    numbers = [data[split].get("images") if isinstance(data.get(split), dict) else None for split in ("train", "test")]
    counted = "+".join(str(n) for n in numbers if isinstance(n, int))
    return f"{counted} images {hashlib.sha256(text.encode()).hexdigest()[:6]}".strip()
