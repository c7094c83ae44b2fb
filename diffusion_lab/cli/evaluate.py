"""`diffusion-lab evaluate run=DIR`: evaluate the metrics of a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors
from diffusion_lab.cli.folders import writable
from diffusion_lab.cli.metric_files import with_metrics
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.runs.lines import append_evaluations

if TYPE_CHECKING:
    from rich.table import Table

    from diffusion_lab.metrics import MetricResult
    from diffusion_lab.solvers import Solver
    from diffusion_lab.training import TrainedModel


def run(cfg: DictConfig) -> float | None:
    """Generate samples, print a table of metrics, and append each with its protocol to the run's evaluations.jsonl.

    With a list of `weights` the model is evaluated with each, on the same latents, and the table marks the best.

    Returns:
        The first value.
    """
    from rich.console import Console

    from diffusion_lab.cli.inference import listed, load_trained

    names = [str(name) for name in listed(cfg.weights)]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"weights={names} must name at least one average, each once; use weights=ema")
    models = [load_trained(_with_weights(cfg, name)) for name in names]  # an error in the last comes before any work
    measured: dict[str, list[MetricResult]] = {}
    console, step = Console(), models[0].step
    for name in names:
        measured[name] = _measure(cfg, models.pop(0))
        path = append_evaluations(Path(cfg.run), [result.line(step) for result in measured[name]])
    console.print(_table(measured, f"{cfg.run} at step {step}"))
    first = measured[names[0]]
    console.print(f"protocol: {json.dumps(first[0].protocol)}", soft_wrap=True, highlight=False)
    console.print(f"written to {path}; next: diffusion-lab report {Path(cfg.run).parent}", soft_wrap=True)
    return first[0].value


def _with_weights(cfg: DictConfig, weights: str) -> DictConfig:
    one = cfg.copy()
    one.weights = weights
    return one


def _measure(cfg: DictConfig, trained: TrainedModel) -> list[MetricResult]:
    """The metrics of a model, at least one."""
    from diffusion_lab.cli.checks.compatibility import unfit_metrics
    from diffusion_lab.cli.inference import ready

    writable("run", Path(cfg.run))
    evaluation = part(with_metrics(cfg), "metrics")
    if not evaluation.metrics and not trained.data.conditions.task.paired:
        raise ConfigError("metrics.names=[] must name what to measure; use metrics.names=[fid]")
    if cfg.get("features"):
        trained.data.features = part(cfg, "features")
    with config_errors("metrics"):
        evaluation.check(trained.data)
    if faults := [*unfit_metrics(type(trained.module), evaluation.metrics)]:
        raise InvalidConfig([ConfigError(fault) for fault in faults])
    solver = pick_solver(cfg, trained)
    with ready(trained.module, cfg.device, cfg.precision) as device:
        _, results, _ = evaluation(
            trained.module, solver, trained.data, device, progress=True, ema_decay=trained.decay, keep=0
        )
    if not results:
        raise ConfigError("dataset.features=null must name a feature extractor for metrics; this data set has none")
    return results


def _table(measured: dict[str, list[MetricResult]], title: str) -> Table:
    """One row per metric; with several weights a column for each, and * at the best value of the row."""
    from rich.table import Table

    several = len(measured) > 1
    table = Table("metric", *(measured if several else ["value"]), title=title, caption="* best" if several else None)
    for row in zip(*measured.values(), strict=True):
        best = (min if row[0].better == "lower" else max)(result.value for result in row)
        marks = [" *" if several and result.value == best else "" for result in row]
        table.add_row(row[0].name, *(f"{r.value:.4g}{mark}" for r, mark in zip(row, marks, strict=True)))
    return table


def pick_solver(cfg: DictConfig, trained: TrainedModel) -> Solver:
    """The solver of the command line, or else of the run.

    Raises:
        ConfigError: it does not fit the run's schedule, needs guidance for which the model was not trained, or clips
            unbounded data.
    """
    from diffusion_lab.cli.checks.compatibility import clip_fault, guidance_fault
    from diffusion_lab.training import Trained

    assert trained.own_solver is not None, "load_run sets it"
    if not isinstance(trained, Trained):
        if cfg.get("solver"):
            raise ConfigError(f"solver must be null, because run={cfg.run} is one of {trained.kind}; leave it out")
        return trained.own_solver()
    solver = RunParts(cfg)["solver"] if cfg.get("solver") else trained.own_solver()
    with config_errors("solver"):
        solver.check(trained.denoiser.schedule)
    fault = guidance_fault(solver, trained.data.conditions)
    if cfg.get("solver"):  # an older run may have a solver whose clipping was not checked
        fault = fault or clip_fault(solver, trained.data.source)
    if fault is not None:
        raise ConfigError(fault)
    return solver
