"""W&B's chart of a list: a line over a column of the list's table.

A chart that is logged as `key` is drawn from the table `key_table`. The table has all coordinates of the list, so that
a dashboard can draw the same table over another one, e.g. over log SNR instead of the timestep.
"""

from __future__ import annotations

from typing import Any

from diffusion_lab.loggers.curves import Curve
from diffusion_lab.runs.mirror import VALUE


def chart(key: str, curve: Curve) -> Any:
    """A line over the first coordinate."""
    import wandb

    columns, rows = curve.table()
    return wandb.plot.line(wandb.Table(columns=columns, data=rows), columns[0], VALUE, title=key)
