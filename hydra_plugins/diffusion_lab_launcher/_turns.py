"""The order in which the jobs of a sweep are run."""

from __future__ import annotations

from collections.abc import Sequence

from hydra_plugins.diffusion_lab_launcher._jobs import Job


def in_turns(jobs: Sequence[Job]) -> list[Job]:
    """The jobs with the seed in the outer loop, whatever the order of the words of the command: all methods of the
    first seed, then all of the next one. What changes on the machine over the hours of a sweep then meets all methods
    alike, and a sweep that is stopped has all methods with fewer seeds. Seeds, and the jobs of each, keep their order.
    """
    seeds = list(dict.fromkeys(str(job.config.get("seed")) for job in jobs))
    return sorted(jobs, key=lambda job: seeds.index(str(job.config.get("seed"))))
