"""What `diffusion-lab reproduce` is about to do: jobs, time, disk, what is missing here, and the rows' settings."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from diffusion_lab import progress
from diffusion_lab.cli.compute import torch_threads
from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.imports import importing
from diffusion_lab.cli.processes import in_a_process
from diffusion_lab.cli.same_run import differences
from diffusion_lab.cli.table_jobs import Job, keys_of
from diffusion_lab.cli.untrusted_run import recorded_content
from diffusion_lab.files import read_object
from diffusion_lab.runs.names import RECORD
from diffusion_lab.runs.record import is_done, read_result

FURTHER = "further"  # title of the rows' own settings beside their options
BUDGET_S = 2.0  # for the measured steps of one job
FEW = 3  # settings in which a run may differ to be named beside one


class Plan(NamedTuple):
    """The plan of a table.

    Attributes:
        jobs: all trainings, without repetitions.
        open: those that are not done.
        seconds: of the open ones, one after another; on GPUs, of each.
        gpu_hours: of the open ones; 0 on a CPU.
        disk: bytes of the open ones' checkpoints.
        basis: where the time is from.
        missing: sentences about what this machine lacks.
        beside: the settings in which finished runs differ from the open ones, `key=theirs (now ours)`; "" without any.
    """

    jobs: Sequence[Job]
    open: Sequence[Job]
    seconds: float
    gpu_hours: float
    disk: float
    basis: str
    missing: Sequence[str]
    beside: str = ""


def plan_of(jobs: Sequence[Job], root: Path) -> Plan:
    """The plan of a table's jobs, whose folders are in `root`."""
    distinct = list({job.folder: job for job in jobs}.values())
    done = {job.folder for job in distinct if is_done(read_result(root / job.folder), job.config.max_steps)}
    waiting = [job for job in distinct if job.config.get("anew") or job.folder not in done]
    if not waiting:
        return Plan(distinct, waiting, 0.0, 0.0, 0.0, "", [])
    with importing():
        import torch

        import diffusion_lab.cli.cost.cost  # noqa: F401 before the copy of this process
    threads = torch.get_num_threads()
    with torch_threads(1):  # a copy of a process that has started PyTorch's threads would wait for them
        with progress.waiting("checking what is here"):
            missing, beside = _missing(waiting), _beside(waiting, root)
        counted = [job for job in waiting if job.config.get("prediction") is not None]
        if not counted:
            return Plan(distinct, waiting, 0.0, 0.0, 0.0, "a GAN's cost is not estimated", missing, beside)
        with progress.waiting("timing some steps of the first run, and counting the operations of all"):
            seconds, gpus, disk, basis = in_a_process(lambda: _measured(counted, bool(missing), threads))
    basis += ", without the GANs" if len(counted) < len(waiting) else ""
    return Plan(distinct, waiting, seconds, gpus * seconds / 3600, disk * len(counted), basis, missing, beside)


def _measured(jobs: Sequence[Job], missing: bool, threads: int) -> tuple[float, int, int, str]:
    """Seconds of all jobs; GPUs and checkpoints in bytes of the first, and the source of the times in words."""
    import torch

    from diffusion_lab.cli.cost.cost import cost_of, counted_flops

    torch.set_num_threads(threads)
    first = cost_of(jobs[0].config, BUDGET_S, missing)
    rate = first.seconds / counted_flops(jobs[0].config)
    return sum(rate * counted_flops(job.config) for job in jobs), first.gpus, first.disk, first.basis


def _missing(jobs: Sequence[Job]) -> list[str]:
    """What the first job of each data set and trainer lacks here."""
    from diffusion_lab.cli.validate import missing_here

    kinds: dict[str, DictConfig] = {}
    for job in jobs:
        choices = choices_of(job.config)
        kinds.setdefault(f"{choices.get('dataset')} {choices.get('trainer')}", job.config)
    tasks = [OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"]) for cfg in kinds.values()]
    return list(dict.fromkeys(str(error) for cfg in tasks for error in missing_here(cfg)))


def _beside(jobs: Sequence[Job], root: Path) -> str:
    """`Plan.beside`: if the first open job of each row and column has a finished run of its name that differs in the
    same few settings, none of which tells rows or columns apart, the command or a conf/ has changed since."""
    first = list({(job.row.name, job.column.name, job.model): job for job in reversed(jobs)}.values())
    own = keys_of([job.row for job in first], [job.column for job in first])
    found: dict[str, tuple[Any, Any]] = {}
    for job in first:
        near = min(_finished(job, root), key=len, default={})
        if not near or len(near) > FEW or (found and near.keys() != found.keys()):
            return ""
        found = found or near
    if any(f"{key}.".startswith(f"{word}.") for key in found for word in own):
        return ""
    longest_first = sorted(found.items(), key=lambda one: -len(one[0]))
    keys = {f"{then} (now {now})": key for key, (then, now) in longest_first}  # parts repeat settings in longer keys
    return ", ".join(f"{key}={values}" for values, key in keys.items())


def _finished(job: Job, root: Path) -> Iterator[dict[str, tuple[Any, Any]]]:
    """{key: (there, in the job)} of the finished runs of the job's name, but for seeds."""
    name = job.folder.rpartition("-")[0]
    for record in sorted(root.glob(f"{glob.escape(name)}-*/{RECORD}")):
        saved = (read_object(record) or {}).get("config")
        if isinstance(saved, dict) and is_done(read_result(record.parent)):
            with suppress(ConfigError):
                found = differences(recorded_content(saved), job.config)
                yield {key: both for key, both in found.items() if key != "seed"}


def settings_of(cfg: DictConfig) -> dict[str, str]:
    """What distinguishes rows of papers' tables, in the field's words."""
    choices, get = choices_of(cfg), lambda key: OmegaConf.select(cfg, key)
    named = {
        "data": choices.get("dataset"),
        "network": choices.get("network"),
        "method": choices.get("method"),
        "schedule": choices.get("schedule"),
        "T": get("schedule.num_timesteps"),
        "prediction": choices.get("prediction"),
        "weighting": choices.get("weighting"),
        "sampler": choices.get("sampler"),
        "lr": get("optimizer.lr"),
        "betas": get("optimizer.betas"),
        "warm-up": get("annealing.warmup_steps"),
        "annealing": choices.get("annealing"),
        "EMA": get("averaging.stds") or get("callbacks.ema.decays"),
        "clip": get("gradient_clip") or "none",
        "batch": cfg.batch_size,
        "steps": cfg.max_steps,
        "solver": choices.get("solver"),
        "solver steps": get("solver.steps"),
        "samples": get("metrics.num_samples"),
        "latents": "of the run's seed" if (seed := get("metrics.seed")) is None else f"of seed {seed} for all runs",
    }
    return {key: _text(value) for key, value in named.items() if value is not None}


def common_and_different(jobs: Sequence[Job]) -> tuple[dict[str, str], list[str], list[list[str]]]:
    """Settings that all jobs share; the names of the others, and a line of them for each row in each column of the
    paper, which is named where there are several."""
    lines = {(job.column.title, job.row.title, job.model): settings_of(job.config) | _further(job) for job in jobs}
    keys = list(dict.fromkeys(key for settings in lines.values() for key in settings))
    keys.sort(key=lambda key: key != FURTHER)  # first: where room lacks, the last columns are left out
    shared = {key for key in keys if len({settings.get(key) for settings in lines.values()}) == 1}
    first = next(iter(lines.values()), {})
    different = [key for key in keys if key not in shared]
    cells = {(row, column, *(own.get(k, "") for k in different)): None for (column, row, _), own in lines.items()}
    rows = [list(line) for line in cells]  # models of a row that differ in their seed alone are one line
    titles = ["row", "paper's column", *different]
    if len({column for column, _, _ in lines}) < 2:
        titles, rows = ["row", *different], [[line[0], *line[2:]] for line in rows]
    return {key: first[key] for key in keys if key in shared}, titles, rows if different else []


def _further(job: Job) -> dict[str, str]:
    """The row's own settings beside its options."""
    model = job.row.models[job.model]
    words = {*model.overrides, *model.paper, *model.scaled, *job.row.within.get(job.column.name, ())}
    own = " ".join(word for word in job.words if word in words and "." in word.partition("=")[0])
    return {FURTHER: own} if own else {}


def _text(value: Any) -> str:
    if OmegaConf.is_list(value):
        return ", ".join(_text(entry) for entry in value)
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
