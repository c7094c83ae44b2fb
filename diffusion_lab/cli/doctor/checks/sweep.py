"""A sweep, whose jobs are copies of the process that has checked them."""

from __future__ import annotations

from diffusion_lab.cli.doctor.check import Finding, Place, check, differs, ok
from diffusion_lab.cli.doctor.checks.training import STEPS_ALONE, command
from diffusion_lab.runs.names import RECORD

SEEDS = (0, 1)


@check(limit=240)
def sweep(place: Place) -> Finding:
    """`train -m` with two jobs at a time: both are done. A copy of a process that has used a GPU could not use it."""
    from diffusion_lab.cli.doctor.small_training import SMALL
    from diffusion_lab.runs.find import read_runs

    folder = place.folder / "sweep"
    seeds = f"seed={','.join(map(str, SEEDS))}"
    try:
        command(folder, "-m", *SMALL, *STEPS_ALONE, *place.settings, seeds, "hydra.launcher.n_jobs=2")
    except RuntimeError:
        if not list(folder.glob(f"*/{RECORD}")):  # not one job has begun
            raise
    runs = read_runs(folder).runs
    done = sum(run.status == "done" for run in runs)
    if done == len(SEEDS):
        return ok(f"{done} jobs done")
    why = next((run.cause for run in runs if run.cause), "")
    return differs(f"{done} of {len(SEEDS)} jobs done; {why}")
