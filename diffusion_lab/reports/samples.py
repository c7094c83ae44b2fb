"""Sample grids for the page: the newest of every run at equal seeds, and their course over training.

The grids of all runs start from the same latents, so pictures at one place of two grids may be compared.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diffusion_lab.plotting import look
from diffusion_lab.reports.groups import Group
from diffusion_lab.runs.run import Run

NEWEST_WIDTH, COURSE_WIDTH, SNAPSHOTS = 520, 260, 6  # pixels, pixels, pictures in a row
_LARGE = 150_000  # bytes from which a colour picture is stored as JPEG


class Picture(NamedTuple):
    """An image as a `data:` address with what it shows."""

    image: str
    caption: str
    alt: str


class Strip(NamedTuple):
    """Pictures of one group or one seed, with None where a run has none."""

    label: str
    color: str
    pictures: list[Picture | None]


def newest(groups: Sequence[Group]) -> list[Strip]:
    """One strip per seed, one picture per group."""
    shown = [group for group in groups if any(run.samples() for run in group.runs)]
    seeds = sorted({run.seed for group in shown for run in group.runs if run.samples() and run.seed is not None})
    strips = []
    for seed in seeds:
        runs = [next((run for run in group.runs if run.seed == seed), None) for group in shown]
        pictures = [
            _newest(run, group.label) if run is not None else None for run, group in zip(runs, shown, strict=True)
        ]
        strips.append(Strip(f"seed {seed}", "", pictures))
    return strips


def columns(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """(label, colour) of the groups that have samples, the columns of `newest`."""
    have = [(i, group) for i, group in enumerate(groups) if any(run.samples() for run in group.runs)]
    return [(group.label, look(i).color) for i, group in have]


def course(groups: Sequence[Group]) -> list[Strip]:
    """One strip per group: snapshots of its first seed, evenly chosen, first and last among them."""
    strips = []
    for i, group in enumerate(groups):
        runs = [run for run in (*group.done, *group.started) if len(run.samples()) > 1]
        if not runs:
            continue
        run, found = runs[0], runs[0].samples()
        steps = list(found)
        picked = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), SNAPSHOTS)).round().astype(int))
        pictures = [_picture(found[steps[k]], run, group.label, steps[k], COURSE_WIDTH) for k in picked]
        strips.append(Strip(f"{group.label}, seed {run.seed}", look(i).color, pictures))
    return strips


def _newest(run: Run, label: str) -> Picture | None:
    found = run.samples()
    return _picture(found[max(found)], run, label, max(found), NEWEST_WIDTH) if found else None


def _picture(path: Path, run: Run, label: str, step: int, width: int) -> Picture | None:
    image = embed(path, width)
    if image is None:
        return None
    caption = f"step {step:,}".replace(",", "\N{NO-BREAK SPACE}")
    if run.status != "done" and step == max(run.samples()):
        caption += f" ({run.status})"
    return Picture(image, caption, f"samples of {label}, seed {run.seed}, step {step}")


def embed(path: Path, width: int) -> str | None:
    """The picture, at most `width` pixels wide, as a `data:` address; None if it cannot be read."""
    from PIL import Image

    try:
        raw = path.read_bytes()
        with Image.open(io.BytesIO(raw)) as opened:
            image = opened.convert("L" if opened.mode in ("1", "L", "I;16") else "RGB")
    except OSError:
        return None
    kind = "png"
    if image.width > width:
        image = image.resize((width, max(1, round(image.height * width / image.width))), Image.Resampling.LANCZOS)
        raw = _encoded(image, "PNG")
    if image.mode == "RGB" and len(raw) > _LARGE:
        raw, kind = _encoded(image, "JPEG"), "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(raw).decode()}"


def _encoded(image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **({"quality": 90} if kind == "JPEG" else {}))
    return buffer.getvalue()
