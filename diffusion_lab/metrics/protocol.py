"""The protocol of a metric's value: everything it depends on, so that values can be compared."""

from __future__ import annotations

from typing import Any

from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.metric import OF_EXTRACTOR, Given, Metric


def protocol(metric: Metric, given: Given) -> dict[str, Any]:
    """The metric's own settings and those of what it needs: samples, extractor and reference images, pairs."""
    model, settings = given.model, metric.settings(given)
    if metric.needs <= {"model"}:
        return settings | {"ema_decay": model.ema_decay}
    common = {
        "samples": given.num_samples,
        "solver": model.solver.describe(),
        "ema_decay": model.ema_decay,
        "seed": model.seed,
    }
    if not metric.needs & OF_EXTRACTOR:
        count = min(given.num_samples, len(model.data.source.test())) if "pairs" in metric.needs else 0
        return common | ({"reference": of_test_images(model.data, count)} if count else {}) | settings
    record = given.reference.metadata
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
