"""Names in Weights & Biases, which mirrors metrics.jsonl: those that loggers write and dashboards read."""

from __future__ import annotations

PROJECT = "diffusion-lab"
STEP = "trainer/global_step"  # Lightning's name of the axis
IMAGES, SECONDS = "images", "seconds"  # further axes: training images seen, and training time in seconds
VALUE, INDEX = "value", "index"  # columns of a list's table: the list, and its coordinate if none is known
TABLE = "_table"  # W&B's suffix of the table behind a chart
LINES = "wandb/line/v0"  # W&B's name of a chart with a line over a column of a table
NOT_IN_A_PROJECT = "/\\#?%:"  # which W&B refuses in the names of projects and in ids
LONGEST = 128  # characters of a project's name


def check_name(key: str, value: str) -> str:
    """`value` if it can be a name in W&B, else ValueError: a text in one line, without control characters."""
    if not value.isprintable():
        raise ValueError(f"{key}={value!r} must be text in one line without control characters; use another name")
    return value


def check_project(key: str, value: str) -> str:
    """`value` if it can be the name of a project, a user or a team in W&B, else ValueError."""
    signs = [sign for sign in (*NOT_IN_A_PROJECT, "${") if sign in check_name(key, value)]
    if not value.strip() or len(value) > LONGEST or signs:
        why = f" and without {' '.join(signs)}" if signs else ""
        raise ValueError(f"{key}={value!r} must be a name of 1 to {LONGEST} characters{why}; use {PROJECT}")
    return value
