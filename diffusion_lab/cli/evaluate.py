"""`diffusion-lab evaluate run=DIR`: evaluate the metrics of a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

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

    from diffusion_lab.cli.inference import listed

    names = [str(name) for name in listed(cfg.weights)]
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"weights={names} must name at least one average, each once; use weights=ema")
    measured: dict[str, list[MetricResult]] = {}
    console, step = Console(), 0
    for name in names:
        one = cfg.copy()
        one.weights = name
        step, measured[name] = _measure(one)
        path = append_evaluations(Path(cfg.run), [result.line(step) for result in measured[name]])
    console.print(_table(measured, f"{cfg.run} at step {step}"))
    first = measured[names[0]]
    console.print(f"protocol: {json.dumps(first[0].protocol)}", soft_wrap=True, highlight=False)
    console.print(f"written to {path}; next: diffusion-lab report {Path(cfg.run).parent}", soft_wrap=True)
    return first[0].value


def _measure(cfg: DictConfig) -> tuple[int, list[MetricResult]]:
    """The step of the model and its metrics, at least one."""
    from diffusion_lab.cli.checks.compatibility import unfit_metrics
    from diffusion_lab.cli.inference import load_trained, ready

    trained = load_trained(cfg)
    writable("run", Path(cfg.run))
    evaluation = part(with_metrics(cfg), "metrics")
    if not evaluation.metrics and not trained.data.conditions.task.paired:
        raise ConfigError("metrics.names=[] must name what to measure; use metrics.names=[fid]")
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
    return trained.step, results


def _table(measured: dict[str, list[MetricResult]], title: str) -> Table:
    """One row per metric; with several weights one row per weights, with * at the best value of each metric."""
    from rich.table import Table

    if len(measured) == 1:
        table = Table("metric", "value", title=title)
        for result in next(iter(measured.values())):
            table.add_row(result.name, f"{result.value:.4g}")
        return table
    best = {}
    for column in zip(*measured.values(), strict=True):
        pick = min if column[0].better == "lower" else max
        best[column[0].name] = pick(result.value for result in column)
    table = Table("weights", *best, title=title, caption="* best of its column")
    for name, results in measured.items():
        table.add_row(name, *(f"{r.value:.4g}{' *' if r.value == best[r.name] else ''}" for r in results))
    return table


def pick_solver(cfg: DictConfig, trained: TrainedModel) -> Solver:
    """The solver of the command line, or else of the run.

    Raises:
        ConfigError: it does not fit the run's schedule, needs guidance for which the model was not trained, or clips
            unbounded data.
    """
    from diffusion_lab.cli.checks.compatibility import clip_fault, guidance_fault
    from diffusion_lab.cli.load import trusted
    from diffusion_lab.training import Trained

    own = RunParts(OmegaConf.create(trained.config), trusted(cfg))  # with the trust of `load_run`
    if not isinstance(trained, Trained):
        if cfg.get("solver"):
            raise ConfigError(f"solver must be null, because run={cfg.run} is one of {trained.kind}; leave it out")
        return own["model"].solver(own)
    solver = RunParts(cfg)["solver"] if cfg.get("solver") else own["model"].solver(own)
    with config_errors("solver"):
        solver.check(trained.denoiser.schedule)
    fault = guidance_fault(solver, trained.data.conditions)
    if cfg.get("solver"):  # an older run may have a solver whose clipping was not checked
        fault = fault or clip_fault(solver, trained.data.source)
    if fault is not None:
        raise ConfigError(fault)
    return solver
