"""Jobs as products of settings, and each product as a W&B sweep, whose agent calls `diffusion-lab train` for its jobs.

A job is a list of `key=value` words. Jobs with the same keys are a grid if every combination of their values is among
them; if not, they are divided by the value of the first key that varies, and so on. The grids therefore contain every
job once and no other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diffusion_lab.runs.shell_commands import setting

SWEEP_HEAD = "# Start it with: wandb sweep "  # how every file begins
HEAD = f"""{SWEEP_HEAD}FILE
# and, on each machine, with the command `wandb agent ...` that this prints. A job is the command below with one value
# of each parameter.
"""


class Grid(NamedTuple):
    """Every combination of some settings.

    Attributes:
        fixed: key -> value of all jobs; a word without `=` has the value None.
        varied: key -> its values, at least two.
    """

    fixed: dict[str, str | None]
    varied: dict[str, list[str | None]]

    @property
    def words(self) -> list[str]:
        """The fixed settings as words."""
        return [key if value is None else f"{key}={value}" for key, value in self.fixed.items()]


def grids(jobs: Sequence[Sequence[str]]) -> list[Grid]:
    """The grids of jobs, in the order of their first job; a job that occurs twice counts once."""
    same_keys: dict[frozenset[str], list[dict[str, str | None]]] = {}
    for words in jobs:
        job = {key: value if equals else None for key, equals, value in (word.partition("=") for word in words)}
        among = same_keys.setdefault(frozenset(job), [])
        among += [] if job in among else [job]
    return [grid for same in same_keys.values() for grid in _divided(same)]


def _divided(jobs: Sequence[Mapping[str, str | None]]) -> list[Grid]:
    values = {key: list(dict.fromkeys(job[key] for job in jobs)) for key in jobs[0]}
    varied = {key: several for key, several in values.items() if len(several) > 1}
    if math.prod(map(len, varied.values())) == len(jobs):
        return [Grid({key: one[0] for key, one in values.items() if key not in varied}, varied)]
    first = next(iter(varied))
    return [grid for value in varied[first] for grid in _divided([job for job in jobs if job[first] == value])]


def sweep_file(
    grid: Grid, name: str, project: str, metric: tuple[str, str] | None = None, config_dirs: Sequence[str] = ()
) -> str:
    """The text of the yaml file. The web page shows `metric`, a name and which direction is better, "lower" or
    "higher"."""
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
    logging = ["logger=wandb", setting("logger.wandb.project", project)]
    own = [word for folder in config_dirs for word in ("--config-dir", folder)]
    content["command"] = ["diffusion-lab", "train", *own, *logging, *words, "${args_no_hyphens}"]
    content["parameters"] = {key: {"values": values} for key, values in varied.items()}
    return HEAD + yaml.safe_dump(content, sort_keys=False, width=1000)
