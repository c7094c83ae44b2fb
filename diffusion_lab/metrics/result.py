"""A metric's value, its protocol, which is all it depends on, and what several sets of samples give together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.metric import OF_EXTRACTOR, Given, Metric, value_of


def protocol(metric: Metric, given: Given) -> dict[str, Any]:
    """The metric's own settings and those of what it needs: samples, extractor and reference images, pairs."""
    model, settings = given.model, metric.settings(given)
    if metric.needs <= {"model"}:
        return settings | {"ema_decay": model.ema_decay}
    common = {
        "samples": given.num_samples,
        "solver": model.solver.describe(),
        "ema_decay": model.ema_decay,
        "seed": model.latents.rule,
    }
    if not metric.needs & OF_EXTRACTOR:
        count = min(given.num_samples, len(model.data.source.test())) if "pairs" in metric.needs else 0
        return common | ({"reference": of_test_images(model.data, count)} if count else {}) | settings
    record = metric.reference(given).metadata
    compared = record["images"] if "moments" in metric.needs else record["subset"] if "features" in metric.needs else 0
    return {
        "extractor": {"name": record["extractor"], "weights_sha256": record["weights_sha256"]},
        **common,
        "reference": {key: record[key] for key in ("dataset", "split", "fingerprint", "shape")} | {"n": compared},
        **settings,
    }


def of_test_images(data: ImageDataModule, count: int) -> dict[str, Any]:
    """The entry `reference` of a metric that uses `count` test images."""
    source = data.source
    return {"dataset": source.name, "split": "test", "fingerprint": source.test().fingerprint(), "n": count}


class MetricResult(NamedTuple):
    """The value of a metric with its protocol (extractor, samples, solver, EMA decay, reference and latents), which
    direction is better, as `Metric.better`, its units and how it is compared; if it summarizes several values, these as
    well, and the 95 % interval of metrics that have one."""

    name: str
    value: float
    protocol: dict[str, Any]
    better: str
    units: str
    values: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    compared_by: str = "difference"

    def line(self, step: int) -> dict[str, Any]:
        """The line of evaluations.jsonl."""
        direction = {"better": self.better, "units": self.units, "compared_by": self.compared_by}
        of: dict[str, Any] = {"values": list(self.values)} if self.values else {}
        of |= {"interval": list(self.interval)} if self.interval else {}
        return {"step": step, "name": self.name, "value": self.value, **of, **direction, "protocol": self.protocol}

    def warning(self, step: int) -> str | None:
        """That the value at a step is not finite, which a table and a figure have no place for; None if it is."""
        return None if math.isfinite(self.value) else f"metrics/{self.name} is not finite at step {step} ({self.value})"


def result_of(metric: Metric, name: str, given: Given) -> MetricResult | None:
    """The result under its public name; None if the metric is not defined for this model."""
    if (value := value_of(metric, given)) is None:
        return None
    how, compared_by = protocol(metric, given), metric.compared_by
    interval = metric.interval(given)
    return MetricResult(name, value, how, metric.better, metric.units, interval=interval, compared_by=compared_by)


def over_seeds(measured: Sequence[Iterable[MetricResult]]) -> list[MetricResult]:
    """What several evaluations of one model, with different latents, give together.

    For a metric `fid50k` of three evaluations: `fid50k_mean_of_3`, and if lower is better `fid50k_least_of_3`, which is
    how EDM reports FID (Karras et al. 2022, README of NVlabs/edm: three times 50,000 images, the least of the three).
    The least is below the mean by 0.85 standard deviations of one value, and says nothing about the model; it is for
    comparison with tables that were made so. The entry "seed" of the protocol names the latents of each.

    Args:
        measured: the results of each evaluation, at least two; a metric that does not depend on samples is left out.

    Returns:
        Mean and least of each metric that all evaluations have, in the order of the first.
    """
    found: list[MetricResult] = []
    rest = [{result.name: result for result in results} for results in measured[1:]]
    for first in measured[0]:
        if "seed" not in first.protocol or not all(first.name in results for results in rest):
            continue
        same = [first, *(results[first.name] for results in rest)]
        values = tuple(result.value for result in same)
        protocol = first.protocol | {"seed": [result.protocol["seed"] for result in same]}
        summaries = {"mean": sum(values) / len(values)} | ({"least": min(values)} if first.better == "lower" else {})
        for word, value in summaries.items():
            name = f"{first.name}_{word}_of_{len(values)}"
            found.append(first._replace(name=name, value=value, protocol=protocol, values=values, interval=None))
    return found
