"""The question that a sweep answers, stated before its first run: the node `question` of a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.errors import nearest
from diffusion_lab.intervals import ESTIMANDS

if TYPE_CHECKING:
    from diffusion_lab.data import ImageDataModule
    from diffusion_lab.metrics import Evaluation, Metric


def question_of(cfgs: Sequence[DictConfig]) -> dict[str, Any]:
    """What sweep.json records: metric (the name of its values, e.g. fd1k_digits; None if there is none, or several),
    estimand, margin, the numbers of seeds and of samples (None without any, or if runs differ), and of a race that it
    is one, and its error."""
    node = cfgs[0].question
    found = {one.metrics.get("num_samples") or None for one in cfgs}
    seeds = node.seeds or len({cfg.seed for cfg in cfgs})
    return {
        "metric": _metric(cfgs),
        "estimand": node.estimand,
        "margin": node.margin,
        "seeds": seeds,
        "samples": found.pop() if len(found) == 1 else None,
        **({} if node.get("stopping", "fixed") == "fixed" else {"stopping": node.stopping, "alpha": node.alpha}),
    }


def words(question: Mapping[str, Any]) -> str:
    """`fd1k_digits at the end; equal up to a ratio of 1.1; 4 seeds, 1,000 samples`."""
    metric, samples = question["metric"] or "the report's metric", question["samples"]
    count = f"{question['seeds']} seed{'s' * (question['seeds'] != 1)}" + (f", {samples:,} samples" if samples else "")
    if question.get("stopping") == "race":
        count = f"a race of at most {count}"
    return f"{metric} {ESTIMANDS[question['estimand']]}; equal up to a ratio of {question['margin']:g}; {count}"


def metric_fault(
    cfg: DictConfig, evaluation: Evaluation, data: ImageDataModule, beside: Iterable[str], typed: Sequence[str]
) -> str | None:
    """The sentence about a metric that this run does not measure; None if it does, or if it measures none and the
    question is that of a preset, no word of `typed`. Other values that can be asked for, such as val/loss, are
    `beside`."""
    wanted, measured = cfg.question.metric, [metric.name for metric in evaluation.measured(data)]
    known, asked = [*measured, *beside], "question.metric" in {word.partition("=")[0] for word in typed}
    if wanted is None or wanted in known or not (measured or asked):
        return None
    if not known:
        return f"question.metric={wanted} must be left out, because this run measures nothing; or use metrics=default"
    which = f"one of {', '.join(known)}, which this run measures"
    return f"question.metric={wanted} must be {which}{nearest(wanted, known)}; use question.metric={known[0]}"


def deciding(cfg: DictConfig) -> tuple[Metric, str] | None:
    """The metric that decides between runs of one configuration, and the name of its values ("" where that needs data
    that are not there); None if they measure none that could."""
    from diffusion_lab.cli.metric_files import with_metrics
    from diffusion_lab.cli.run_parts import part

    evaluation, data = part(with_metrics(cfg), "metrics"), part(cfg, "dataset")
    named, measured = cfg.question.metric, evaluation.measured(data)
    metric = next((one for one in measured if one.name == named or (not named and one.better != "neither")), None)
    if metric is None:
        return None
    with suppress(FileNotFoundError):
        return metric, evaluation.result_name(metric, data)
    return metric, ""


def _metric(cfgs: Sequence[DictConfig]) -> str | None:
    """The name of the values that decide, by default of the first metric that a run measures and that has a direction,
    as `report` takes it; None if it is not the same for all data sets of the sweep, or nothing is measured."""
    wanted, found = cfgs[0].question.metric, dict[str, str | None]()
    if wanted is not None and "/" in wanted:
        return wanted
    for cfg in cfgs:
        key = OmegaConf.to_yaml(OmegaConf.create({"metrics": cfg.metrics, "dataset": cfg.dataset}))
        if key not in found:
            named = deciding(cfg) if cfg.metrics.num_samples else None
            found[key] = named[1] or None if named else None
    different = set(found.values())
    return different.pop() if len(different) == 1 else None
