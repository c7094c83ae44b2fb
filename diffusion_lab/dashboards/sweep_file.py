"""A grid of jobs as a W&B sweep, whose agent calls `diffusion-lab train` for each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from diffusion_lab.dashboards.grids import Grid

SWEEP_HEAD = "# Start it with: wandb sweep "  # how every file begins
HEAD = f"""{SWEEP_HEAD}FILE
# and, on each machine, with the command `wandb agent ...` that this prints. A job is the command below with one value
# of each parameter.
"""


def sweep_file(
    grid: Grid, name: str, project: str, metric: tuple[str, str] | None = None, config_dirs: Sequence[str] = ()
) -> str:
    """The text of the yaml file.

    Args:
        grid: the jobs.
        name: name of the sweep.
        project: W&B project.
        metric: name of a metric and which direction is better, "lower" or "higher", which the web page shows.
        config_dirs: folders of the user's own yaml files.
    """
    import yaml

    # A sweep must have a parameter; the seed of a single job is one with a single value.
    varied = grid.varied or {"seed": [grid.fixed.get("seed") or "0"]}
    words = [
        word
        for word in grid.words
        if not word.lstrip("+~").startswith("logger") and word.partition("=")[0] not in varied
    ]
    content: dict[str, Any] = {"name": name, "project": project, "program": "diffusion-lab", "method": "grid"}
    if metric is not None:
        goal = {"lower": "minimize", "higher": "maximize"}[metric[1]]
        content["metric"] = {"name": f"metrics/{metric[0]}", "goal": goal}
    logging = ["logger=wandb", f"logger.wandb.project={_quoted(project)}"]
    own = [word for folder in config_dirs for word in ("--config-dir", folder)]
    content["command"] = ["diffusion-lab", "train", *own, *logging, *words, "${args_no_hyphens}"]
    content["parameters"] = {key: {"values": values} for key, values in varied.items()}
    return HEAD + yaml.safe_dump(content, sort_keys=False, width=1000)


def _quoted(value: str) -> str:
    """A text as the value of an override."""
    if re.fullmatch(r"[A-Za-z_][\w-]*", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
