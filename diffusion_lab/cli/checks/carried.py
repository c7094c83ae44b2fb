"""Parts that act through a callback: without it a run would be another method than its record says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from diffusion_lab.annealing import Constant
from diffusion_lab.callbacks import AnnealingCallback, HeadTracking, TimestepSampling, WeightNormalization
from diffusion_lab.timesteps import Uniform


def missing_callbacks(objects: Mapping[str, Any], callbacks: Sequence[Any]) -> Iterator[str]:
    """A sentence for each part that no callback carries.

    Args:
        objects: the parts by their names, as far as they could be built.
        callbacks: the callbacks of the run.
    """
    sampler, annealing = objects.get("sampler"), objects.get("annealing")
    weighting, prediction = objects.get("weighting"), objects.get("prediction")
    acts = {  # callback -> (its key, the part that needs it as one would type it, or None; what needs none)
        TimestepSampling: ("timestep_sampling", _unless(sampler, Uniform, "sampler"), "sampler=uniform"),
        AnnealingCallback: ("annealing", _unless(annealing, Constant, "annealing"), "annealing=constant"),
        WeightNormalization: (
            "weight_normalization",
            f"weighting.normalize={weighting.normalize}" if weighting and weighting.normalize != "none" else None,
            "weighting.normalize=none",
        ),
        HeadTracking: (
            "head_tracking",
            f"prediction={type(prediction).__name__}" if prediction and prediction.heads > 1 else None,
            "a prediction of one head",
        ),
    }
    for kind, (key, needing, cure) in acts.items():
        if needing and not any(isinstance(callback, kind) for callback in callbacks):
            yield f"callbacks.{key}=null must be a {kind.__name__} with {needing}; leave it in, or use {cure}"


def _unless(part: Any, idle: type, group: str) -> str | None:
    return None if part is None or type(part) is idle else f"{group}={type(part).__name__}"
