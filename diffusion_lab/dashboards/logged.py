"""What runs have logged to W&B, so that a dashboard has no panel without data.

metrics.jsonl has the numbers and lists; the other loggers also get the training time with every value, what the
progress callback reads from the clock, and the norm of the gradient. A test trains a run and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from diffusion_lab.runs.run import Run
from diffusion_lab.runs.wandb_names import IMAGES, INDEX, SECONDS, STEP, VALUE

SAMPLES = "samples"  # the sample grid
NORM = "optim/gradient_norm"
RATE, MEMORY = "cost/images_per_second", "cost/memory_mb"
CLOCK = frozenset({STEP, SECONDS, RATE, MEMORY})
TIMESTEPS = ("timestep", "log_snr", VALUE)
ANGLES = ("noise_angle", "log_snr", VALUE)
# What every diffusion model logs.
NUMBERS = frozenset({IMAGES, "train/loss", "val/loss", "optim/lr", "optim/beta1", NORM})
ADVERSARIAL = frozenset(
    f"train/{name}" for name in ("loss_generator", "loss_discriminator", "judged_real", "judged_fake")
)  # what every GAN logs
LISTS = {key: TIMESTEPS for key in ("val/loss_t", "train/loss_t", "sampler/drawn", "sampler/p", "sampler/objective")}


class LoggedKeys(NamedTuple):
    """Keys in W&B.

    Attributes:
        numbers: keys of numbers.
        lists: key of a list -> columns of its table.
        pictures: keys of pictures.
        better: metric without `metrics/` -> "lower", "higher" or "neither"; its order is that of the panels.
    """

    numbers: frozenset[str]
    lists: Mapping[str, tuple[str, ...]]
    pictures: frozenset[str]
    better: Mapping[str, str]


def expected(better: Mapping[str, str], clipped: bool = True, adversarial: bool = False) -> LoggedKeys:
    """What runs of diffusion models with sample grids will log.

    `better` has their metrics as in `LoggedKeys`. Without `clipped` gradients their norm is not known; where GANs are
    among the runs, they are `adversarial`.
    """
    numbers = NUMBERS | CLOCK | {f"metrics/{name}" for name in better} | (ADVERSARIAL if adversarial else frozenset())
    return LoggedKeys(numbers if clipped else numbers - {NORM}, LISTS, frozenset({SAMPLES}), better)


def logged_by(runs: Iterable[Run]) -> LoggedKeys:
    """What is in the line files of runs, and what the other loggers get with it."""
    numbers, lists, pictures, better = set(CLOCK), {}, set(), {}
    for run in runs:
        for key in run.keys(""):
            if run.curve(key).values.ndim == 2:
                # The ranges of the lists of a prediction's heads are of the noise angle.
                lists[key] = LISTS.get(key) or (ANGLES if key.startswith("prediction/") else (INDEX, VALUE))
            elif key != "step":
                numbers.add(key)
        pictures |= {SAMPLES} if run.samples() else set()
        numbers |= {NORM} if run.config.get("gradient_clip") and "train/loss" in numbers else set()
        better |= {name: run.better(name) or "lower" for name in run.metric_names if f"metrics/{name}" in numbers}
    return LoggedKeys(frozenset(numbers), lists, frozenset(pictures), better)
