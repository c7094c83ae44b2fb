"""Sample grids for the page: the newest of every run at equal seeds, and of one run over training.

The grids of all runs start from the same latents, so images at the same position of two grids can be compared.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from diffusion_lab.files_inside import read_inside
from diffusion_lab.plotting import line_style
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.runs.run import Run

NEWEST_WIDTH, COURSE_WIDTH, MOST_STEPS = 520, 260, 6  # pixels, pixels, pictures in a row
_LARGEST, _PIXELS = 64 * 2**20, 50_000_000  # bytes and pixels of a grid
_LARGE = 150_000  # colour pictures with more bytes are stored as JPEG


class Picture(NamedTuple):
    """An image as a `data:` address, with its caption and alternative text."""

    image: str
    caption: str
    alt: str


class Strip(NamedTuple):
    """Pictures of one group or one seed; None for a run without one."""

    label: str
    color: str
    pictures: list[Picture | None]


def newest(groups: Sequence[Group]) -> list[Strip]:
    """One strip per seed, one picture per group."""
    shown = [group for group in groups if any(run.samples() for run in group.runs)]
    seeds = sorted({run.seed for group in shown for run in group.runs if run.samples() and run.seed is not None})
    return [Strip(f"seed {seed}", "", [_newest(group, seed) for group in shown]) for seed in seeds]


def columns(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """(label, colour) of the groups that have samples, the columns of `newest`."""
    have = [(i, group) for i, group in enumerate(groups) if any(run.samples() for run in group.runs)]
    return [(group.label, line_style(i).color) for i, group in have]


def samples_over_training(groups: Sequence[Group]) -> list[Strip]:
    """One strip per group: evenly spaced steps of its first seed, including the first and the last."""
    strips = []
    for i, group in enumerate(groups):
        runs = [run for run in (*group.done, *group.started) if len(run.samples()) > 1]
        if not runs:
            continue
        run, grids = runs[0], runs[0].samples()
        steps = list(grids)
        picked = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).round().astype(int))
        pictures = [_picture(grids[steps[k]], run, group.label, steps[k], COURSE_WIDTH) for k in picked]
        strips.append(Strip(f"{group.label}, seed {run.seed}", line_style(i).color, pictures))
    return strips


def _newest(group: Group, seed: int) -> Picture | None:
    run = next((run for run in group.runs if run.seed == seed), None)
    grids = run.samples() if run else {}
    return _picture(grids[max(grids)], run, group.label, max(grids), NEWEST_WIDTH) if run and grids else None


def _picture(path: Path, run: Run, label: str, step: int, width: int) -> Picture | None:
    image = embed(path, width, run.top or run.folder)
    if image is None:
        return None
    caption = f"step {step:,}".replace(",", "\N{NO-BREAK SPACE}")
    if run.status != "done" and step == max(run.samples()):
        caption += f" ({run.status})"
    return Picture(image, caption, f"samples of {label}, seed {run.seed}, step {step}")


def embed(path: Path, width: int, top: Path | None = None) -> str | None:
    """The PNG file below `top`, by default in any folder, at most `width` pixels wide, as a `data:` address; None if
    it cannot be read or is larger than any grid of samples."""
    from PIL import Image

    try:
        raw = read_inside(path, top, _LARGEST)
        with Image.open(io.BytesIO(raw), formats=["PNG"]) as opened:
            if opened.width * opened.height > _PIXELS:
                return None
            image = opened.convert("L" if opened.mode in ("1", "L", "I;16") else "RGB")
    except Exception:  # a file from anybody: Pillow raises more than ten classes of errors
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
