"""Names in Weights & Biases, which mirrors metrics.jsonl: those that loggers write and dashboards read."""

from __future__ import annotations

PROJECT = "diffusion-lab"
STEP = "trainer/global_step"  # Lightning's name of the axis
IMAGES, SECONDS = "images", "seconds"  # further axes: training images seen, and training time in seconds
VALUE, INDEX = "value", "index"  # columns of a list's table: the list, and its coordinate if none is known
TABLE = "_table"  # W&B's suffix of the table behind a chart
LINES = "wandb/line/v0"  # W&B's name of a chart with a line over a column of a table
