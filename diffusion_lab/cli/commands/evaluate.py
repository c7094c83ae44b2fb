"""`diffusion-lab evaluate run=DIR`: evaluate the metrics of a trained model."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from diffusion_lab.arguments import is_number
from diffusion_lab.cli.checks.run_arguments import listed, parse_seeds
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.config import with_value
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors
from diffusion_lab.cli.metric_files import misnamed, with_metrics
from diffusion_lab.cli.output_folders import check_places, writable
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.lines import append_evaluations, read_lines
from diffusion_lab.runs.names import EVALUATIONS
from diffusion_lab.runs.shell_commands import command

if TYPE_CHECKING:
    from rich.table import Table

    from diffusion_lab.metrics import MetricResult
    from diffusion_lab.solvers import Solver
    from diffusion_lab.training import TrainedModel


def run(cfg: DictConfig) -> float | None:
    """Generate samples, print a table of metrics, and append each with its protocol to the run's evaluations.jsonl.

    With a list of `weights` the model is evaluated with each, on the same latents, and the table marks the best. With a
    list of `seeds` it is evaluated on several sets of latents: the sets of the run's seed with these numbers, or, if
    `metrics.seed` is a number, those of these seeds. Written are the first set's values, and mean and least.

    Returns:
        The first value.
    """
    from diffusion_lab.cli.inference import load_trained
    from diffusion_lab.metrics.result import over_seeds
    from diffusion_lab.printable import make_console

    names, seeds = [str(name) for name in listed(cfg.weights)], parse_seeds(cfg.seeds)
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"weights={names} must name at least one average, each once; use weights=ema")
    if len(names) > 1 and seeds:
        raise ConfigError(f"weights={names} must be one average if seeds is a list; use weights={names[0]}")
    # An error in the last comes before any work.
    models = [load_trained(with_value(cfg, "weights", name)) for name in names]
    measured: dict[str, list[MetricResult]] = {}
    step = models[0].step
    before = read_lines(Path(cfg.run) / EVALUATIONS)
    for name in reversed(names):  # the first one's are the newest: those of a metric that training did not measure
        measured[name] = _measure(cfg, model := models.pop(), seeds[:1])
        path = append_evaluations(Path(cfg.run), [result.line(step) for result in measured[name]])
    measured = {name: measured[name] for name in names}
    first, together = measured[names[0]], []
    if seeds:
        columns = [first, *(_measure(cfg, model, [seed], again=True) for seed in seeds[1:])]
        word = "set" if cfg.metrics.get("seed") is None else "seed"
        measured = {f"{word} {seed}": results for seed, results in zip(seeds, columns, strict=True)}
        together = over_seeds(columns)
        append_evaluations(path.parent, [result.line(step) for result in together])
    console = make_console()
    console.print(f"{cfg.run} at step {step}", soft_wrap=True)
    console.print(_table(measured, together))
    warnings = [result.warning(step) for results in (*measured.values(), together) for result in results]
    for warning in dict.fromkeys(filter(None, warnings)):
        print(f"warning: {warning}", file=sys.stderr)
    console.print(f"protocol: {json.dumps(first[0].protocol)}", soft_wrap=True)
    trained = read_run(Path(cfg.run)).keys("metrics/")
    here = [row for row in before if row.get("step") == step]
    for sentence in (*other_protocols(shown(before, trained), first), *other_values(shown(here, trained), first)):
        console.print(sentence, soft_wrap=True)
    console.print(f"written to {path}; next: {command('report', Path(cfg.run).parent)}", soft_wrap=True)
    return first[0].value


def shown(rows: Sequence[dict[str, Any]], trained: Collection[str]) -> dict[str, dict[str, Any]]:
    """Of each metric the row that a report shows: the first of one that training has measured, by its key `metrics/..`
    in `trained`, else the newest."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = str(row.get("name"))
        if name not in found or f"metrics/{name}" not in trained:
            found[name] = row
    return found


def other_protocols(own: Mapping[str, dict[str, Any]], results: Sequence[MetricResult]) -> list[str]:
    """In what the protocol of a value is not that of the run's own: such values are not compared. A sentence for the
    names that share it."""
    found = dict[str, list[str]]()
    for result in results:
        there, here = own.get(result.name, {}).get("protocol"), json.loads(json.dumps(result.protocol))
        if isinstance(there, dict):
            keys = [key for key in here | there if here.get(key) != there.get(key)]
            words = ", ".join(f"{key} {json.dumps(there.get(key))}, not {json.dumps(here.get(key))}" for key in keys)
            found.setdefault(words, []).append(result.name)
    return [f"the run's own {', '.join(names)}: {words}" for words, names in found.items() if words]


def other_values(own: Mapping[str, dict[str, Any]], results: Sequence[MetricResult]) -> list[str]:
    """A sentence of each metric whose value, the run's own at this step, was another one by the same protocol."""
    found = []
    for result in results:
        protocol = json.loads(json.dumps(result.protocol))
        was = own.get(result.name, {})
        if was.get("protocol") == protocol and is_number(was.get("value")):
            if not math.isclose(was["value"], result.value, rel_tol=0.01):
                found.append(
                    f"the run's own {result.name} is {was['value']:.4g} by the same protocol, and is what reports "
                    "show; has the metric changed? give it another name then"
                )
    return found


def _measure(
    cfg: DictConfig, trained: TrainedModel, seed: Sequence[int] = (), again: bool = False
) -> list[MetricResult]:
    """The metrics of a model, at least one, on the latents of `metrics` or other ones; again: only those of samples."""
    from diffusion_lab.cli.inference import ready, threads_of
    from diffusion_lab.metrics import Latents

    check_places("run", Path(cfg.run), [Path(cfg.run) / EVALUATIONS])
    writable("run", Path(cfg.run), files=[EVALUATIONS])
    number = seed[0] if seed else 0
    complete = with_metrics(
        with_value(cfg, "metrics.seed", number) if seed and cfg.metrics.get("seed") is not None else cfg
    )
    evaluation = part(complete, "metrics")
    if faults := misnamed(complete, evaluation.metrics):
        raise InvalidConfig([ConfigError(fault) for fault in faults])
    if not evaluation.metrics and not trained.data.conditions.task.paired:
        raise ConfigError("metrics.names=[] must name what to measure; use metrics.names=[fid]")
    if cfg.get("features"):
        trained.data.features = part(cfg, "features")
    with config_errors(_features_of(cfg, trained)):
        evaluation.check_weights(trained.data)
    if evaluation.reads_images(trained.data):
        with config_errors("dataset"):
            trained.data.prepare_data()
    with config_errors("metrics"):
        evaluation.check(trained.data)
        evaluation.check_model(trained.module)
    there = evaluation.measured(trained.data)
    if seed and there and not any(metric.needs - {"model"} for metric in there):
        names = ", ".join(metric.name for metric in there)
        raise ConfigError(f"seeds must be null for {names}, for which no latents are drawn; leave it out")
    if again:
        evaluation.metrics = tuple(metric for metric in evaluation.metrics if not metric.needs <= {"model"})
    solver = pick_solver(cfg, trained)
    with ready(trained.module, cfg.device, cfg.precision, threads_of(cfg, trained)) as device:
        _, results, _ = evaluation(
            trained.module,
            solver,
            trained.data,
            device,
            progress=True,
            ema_decay=trained.decay,
            keep=0,
            latents=Latents.of_run(trained.config["seed"], number),
        )
    if not results:
        raise nothing_measured([metric.name for metric in evaluation.measured(trained.data)])
    return results


def nothing_measured(names: Sequence[str]) -> ConfigError:
    """The error for metrics without a value: none can be measured on the data, or none is defined for the model."""
    if not names:
        return ConfigError("dataset.features=null must name a feature extractor for metrics; use features=own")
    return ConfigError(
        f"metrics.names=[{','.join(names)}] must be defined for this model, and is not; use another metric"
    )


def _features_of(cfg: DictConfig, trained: TrainedModel) -> str:
    """The node of the extractor as it is typed: of the run's own, the option of this command that is the same one."""
    name = getattr(trained.data.features, "name", "")
    if not cfg.get("features") and (conf_dir() / "features" / f"{name}.yaml").is_file():
        return f"features={name} features"
    return "features"


def _table(measured: dict[str, list[MetricResult]], together: Sequence[MetricResult]) -> Table:
    """One row per metric, and a column for each of several weights, with * at the best, or of several seeds, with the
    rows of what they give together."""
    from rich.table import Table

    several = len(measured) > 1 and not together
    table = Table("metric", *(measured if len(measured) > 1 else ["value"]))
    table.columns[0].no_wrap = True  # a narrow console cuts no name
    table.caption = "* best" if several else None
    rest = [{result.name: result for result in results} for results in measured.values()]
    for name, first in rest[0].items():
        row = [results.get(name) for results in rest]
        finite = [result.value for result in row if result and math.isfinite(result.value)]
        best = (min if first.better == "lower" else max)(finite, default=None)
        marked = several and first.better != "neither"
        marks = [" *" if marked and r and r.value == best else "" for r in row]
        table.add_row(name, *(f"{_with_interval(r)}{mark}" if r else "" for r, mark in zip(row, marks, strict=True)))
    for result in together:
        table.add_row(result.name, f"{result.value:.4g}")
    return table


def _with_interval(result: MetricResult) -> str:
    """`0.5732 [0.534, 0.612]`, or the value alone of a metric that has no interval."""
    ends = f" [{result.interval[0]:.3g}, {result.interval[1]:.3g}]" if result.interval else ""
    return f"{result.value:.4g}{ends}"


def pick_solver(cfg: DictConfig, trained: TrainedModel) -> Solver:
    """The solver of the command line, or else of the run.

    Raises:
        ConfigError: it does not fit the run's schedule, needs guidance for which the model was not trained, or clips
            unbounded data.
    """
    from diffusion_lab.cli.checks.compatibility import guidance_fault, other_images
    from diffusion_lab.cli.load import open_runs, trusted
    from diffusion_lab.training import TrainedDiffusion

    assert trained.own_solver is not None, "load_run sets it"
    if not isinstance(trained, TrainedDiffusion):
        if cfg.get("solver"):
            raise ConfigError(f"solver must be null, because run={cfg.run} is one of {trained.kind}; leave it out")
        return trained.own_solver()
    parts = RunParts(cfg)
    solver = parts["solver"] if cfg.get("solver") else trained.own_solver()
    open_runs(parts, trusted(cfg))
    if faults := [*other_images(parts, trained.data)]:
        raise ConfigError(faults[0])
    with config_errors("solver"):
        solver.check(trained.denoiser.schedule)
        solver.check_model(trained.denoiser)
    source = trained.data.source
    fault = guidance_fault(solver, trained.data.conditions)
    fault = fault or solver.clip_fault("solver", source.name, source.value_range)
    if fault is not None:
        raise ConfigError(fault)
    return solver
