"""Sample grids of two groups from equal noise, or why they have none.

Sample i of a run's grids is a function of (evaluation seed, i), so two grids correspond image by image if the seed, the
solver and the number of images are the same; data and task are the same in a pair.
"""

from __future__ import annotations

from diffusion_lab.reports import samples
from diffusion_lab.reports.differences import lookup
from diffusion_lab.reports.groups import Group
from diffusion_lab.reports.pair import Pair
from diffusion_lab.runs.advice import command, setting

SAME = {"metrics.seed": "seed of the latents", "solver": "solver", "callbacks.generation.grid": "number of images"}


def unequal(pair: Pair) -> list[str]:
    """What the grids of the two runs do not have in common, in words; empty if they are from equal noise."""
    found = []
    for key, words in SAME.items():
        one, other = (lookup(group.config, key) for group in pair.groups)
        if one != other:
            values = [group.word(key) for group in pair.groups]
            found.append(f"{words} ({values[0]} and {values[1]})" if values[0] != values[1] else words)
    return found


def strips(pair: Pair) -> list[samples.Strip]:
    """The newest grids side by side, one strip per seed; empty without grids of both, or if the noise is unequal."""
    if unequal(pair) or not all(_has(group) for group in pair.groups):
        return []
    return samples.newest(pair.groups)


def remark(pair: Pair) -> str:
    """What the grids show, or why there are none and how to make some."""
    missing = [group.label for group in pair.groups if not _has(group)]
    other = unequal(pair)
    if not missing and not other:
        return "The newest grid of each run, from equal latents and solver noise: images at one place correspond."
    reason = f"{' and '.join(missing)} kept no grids" if missing else f"the grids differ in the {', '.join(other)}"
    commands = " and ".join(_command(group) for group in pair.groups)
    return f"No grids from equal noise: {reason}. {commands} make them, with the same solver=... and seed=... for both."


def _has(group: Group) -> bool:
    return any(run.samples() for run in group.runs)


def _command(group: Group) -> str:
    return f"`{command('sample', setting('run', group.runs[0].folder), 'seeds=0-63')}`"
