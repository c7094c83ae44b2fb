"""Names of what training, sampling and export write to a run folder or a sweep folder; only `runs` contains them.

docs/runs.md explains each of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

RECORD = "run.json"  # the run's configuration, its hashes, command, versions; written when training starts
RESULT = "result.json"  # how the run ended: status, step, newest metrics, error, time; written when it ends
METRICS = "metrics.jsonl"  # every logged value, one line per call; a function of the configuration
DIGEST = "metrics.digest"  # the numbers of metrics.jsonl of a finished run as arrays, written when it is first read
EVALUATIONS = "evaluations.jsonl"  # every measured metric with its protocol
TIMING = "timing.jsonl"  # images/s, training time and memory, read from a clock
EVALUATED = "evaluated.json"  # which evaluations of the newest checkpoint's step are done
LOG = "train.log"  # output of a job of a sweep, and tracebacks
LOCK = ".lock"  # held by the training process
HYDRA = ".hydra"  # the composed configuration as Hydra writes it
CHECKPOINTS = "checkpoints"  # folder of the two checkpoints below and of the numbered ones of `keep_every`
LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
CHECKPOINT = ".ckpt"
AVERAGES = "averages"  # a folder of snapshots per average of the weights, from which others are reconstructed
TENSORS = "safetensors"  # without its dot: the suffix of many files that are in no run folder
SAMPLES = "samples"  # PNG grids of samples from the same latents, every `snapshot_every` steps
GENERATED = "generated"  # what `diffusion-lab sample` writes
IMAGES = "images"  # in its folder: the samples, one PNG each, and nothing else
EXPORTED = "export"  # a folder per format that `diffusion-lab export` writes
BEFORE = "before-"  # folders with the run's files from before `anew=true`

SWEEP = "sweep.json"  # of a sweep folder: its commands and all of its jobs
MULTIRUN = "multirun.yaml"  # of a sweep folder: what Hydra's sweeper writes

# Patterns of the files that a run writes
FILES = (
    *(RECORD, RESULT, METRICS, DIGEST, EVALUATIONS, TIMING, EVALUATED, LOG, LOCK),
    *(f"{CHECKPOINTS}/*{CHECKPOINT}", f"{SAMPLES}/*.png", f"{AVERAGES}/*/*.{TENSORS}", f"{HYDRA}/*.yaml"),
)
WRITTEN = (HYDRA, CHECKPOINTS, AVERAGES, SAMPLES)  # folders in a run folder in which a run writes files
LOGGED = (METRICS, EVALUATIONS)  # their bytes are functions of the configuration; a checkpoint stores their lengths


def metric_key(metric: str) -> str:
    """`metrics/fd1k_digits`, by which an evaluation metric is logged; a key with a slash, such as val/loss, stays."""
    return metric if "/" in metric else f"metrics/{metric}"


def numbered(step: int, suffix: str = "") -> str:
    """Name of a file or folder of one step, `step-00001000` plus the suffix; sorts by step."""
    return f"step-{step:08d}{suffix}"


def step_of(name: str, suffix: str = "") -> int | None:
    """The step in a name made by `numbered`; None for any other name."""
    match = re.fullmatch(rf"step-(\d+){re.escape(suffix)}", name)
    return int(match[1]) if match else None


def is_run(folder: Path) -> bool:
    """Whether a run has started in the folder, or failed before it could write its record."""
    return any(os.path.lexists(folder / name) for name in (RECORD, RESULT))
