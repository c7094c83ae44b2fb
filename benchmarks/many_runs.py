"""Folders of many finished runs as training writes them, without training: for benchmarks of what reads them.

A method is one of 10 samplers, 5 weightings and 5 learning rates of digits, composed as `diffusion-lab train` composes
it, so its record is that of a real run but for the hardware. Its values fall as those of real runs do; log lines have
the keys and the digits of a run of digits.
"""

from __future__ import annotations

import copy
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from diffusion_lab.cli.commands.train import facts
from diffusion_lab.cli.config import compose_train
from diffusion_lab.runs import names

SAMPLERS = ("uniform", "logit_normal", "mode", "clts", "speed", "stratified", "beta", "loss_second_moment", "cosmap")
SAMPLERS += ("infonoise",)
WEIGHTINGS, RATES = ("unit", "min_snr", "p2", "soft_min_snr", "debiased"), (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
BATCH, STEPS, BINS, T = 64, 2000, 20, 1000
GRID = Path(__file__).resolve().parents[1] / "tests/releases/0.1.0/samples"
METRICS = {"fd1k_digits": "lower", "test_fd1k_digits": "lower", "copying1k": "neither"}


def write_runs(folder: Path, methods: int, seeds: int = 4, logs: int = 40, steps: int = STEPS) -> None:
    """A sweep of methods x seeds runs, each with `logs` lines of training, 8 validations and 4 snapshots."""
    grid = next(GRID.glob("*.png"))
    words = list(itertools.islice(_methods(), methods))
    command = f"diffusion-lab train -m experiment=demo sampler={','.join(SAMPLERS)} weighting={','.join(WEIGHTINGS)} "
    command += f"optimizer.lr={','.join(map(str, RATES))} seed={','.join(map(str, range(seeds)))}"
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[dict[str, Any]] = []
    composed: dict[tuple[str, ...], Any] = {}
    for k, typed in enumerate(words):
        *parts, rate = typed
        cfg = composed.get(tuple(parts)) or compose_train(
            ["experiment=demo", *parts, f"max_steps={steps}", "seed=0"], folder / "run"
        )
        composed[tuple(parts)] = cfg
        cfg.optimizer.lr = float(rate.partition("=")[2])
        record = facts(cfg)
        for seed in range(seeds):
            name = f"{record['run_id'].rpartition('-s0-')[0]}-s{seed}-{record['group_hash'][:8]}"
            overrides = ["experiment=demo", *typed, f"max_steps={steps}", f"seed={seed}"]
            _write(folder / name, _of_seed(record, seed, overrides), k, seed, logs, steps)
            (folder / name / names.SAMPLES).mkdir()
            for at in (steps // 2, steps):
                shutil.copy(grid, folder / name / names.SAMPLES / names.numbered(at, ".png"))
            jobs.append({"dir": name, "overrides": overrides, "config_hash": f"{record['config_hash'][:-1]}{seed}"})
    question = {"metric": "fid", "estimand": "end", "margin": 1.1, "seeds": seeds}
    content = {"name": folder.name, "commands": [command], "question": question, "jobs": jobs}
    (folder / names.SWEEP).write_text(json.dumps(content))


def _methods() -> Iterator[list[str]]:
    for rate, weighting, sampler in itertools.product(RATES, WEIGHTINGS, SAMPLERS):
        yield [f"sampler={sampler}", f"weighting={weighting}", f"optimizer.lr={rate}"]


def _of_seed(record: dict[str, Any], seed: int, overrides: list[str]) -> dict[str, Any]:
    """The record of another seed of a method."""
    made = copy.deepcopy(record)
    made |= {"seed": seed, "overrides": overrides, "command": f"diffusion-lab train {' '.join(overrides)}"}
    made["config"]["seed"] = made["config"]["dataset"]["seed"] = seed
    made["config_hash"] = f"{record['config_hash'][:-1]}{seed}"
    made |= {
        "parameters": 174_737,
        "global_batch": BATCH,
        "device": "cpu",
        "started": f"2026-01-01T00:{seed:02d}:00+0000",
    }
    images = {"images": 1437, "fingerprint": "afb72b9cff9b"}
    return made | {"data": {"shape": [1, 8, 8], "train": images, "test": images | {"images": 360}, "classes": 10}}


def _write(folder: Path, record: dict[str, Any], method: int, seed: int, logs: int, steps: int) -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng([method, seed])
    level = 2 * np.exp(0.25 * np.random.default_rng(method).standard_normal() + 0.05 * random.standard_normal())
    share = np.full(BINS, 1 / BINS)
    log_every, shape = max(1, steps // logs), np.exp(-np.arange(BINS) / 5) + 0.05
    metrics, timing, evaluations = [], [], []
    last: dict[str, float] = {}
    for i in range(1, logs + 1):
        step = min(i * log_every, steps)
        at = {"step": step, "images": step * BATCH}
        falling = (1 + 9 * np.exp(-4 * step / steps)) * (1 + 0.02 * random.standard_normal(BINS)) * shape
        drawn = random.dirichlet(np.full(BINS, 50.0))
        lists = {"train/loss_t": falling, "sampler/p": share, "sampler/drawn": drawn, "sampler/objective": share}
        numbers = {"train/loss": falling.mean(), "optim/lr": 0.01, "optim/beta1": 0.9}
        numbers |= {f"train/loss_q{q}": falling[5 * q : 5 * q + 5].mean() for q in range(4)}
        metrics.append(at | {key: float(value) for key, value in numbers.items()})
        metrics[-1] |= {key: value.tolist() for key, value in lists.items()}
        if i % max(1, logs // 8) == 0:
            last["val/loss"] = float(falling.mean())
            metrics.append(at | {"val/loss": last["val/loss"], "val/loss_t": falling.tolist()})
        if i % max(1, logs // 4) == 0:
            fd = float(level * (1 + 12 * np.exp(-5 * step / steps)) * np.exp(0.03 * random.standard_normal()))
            found = dict(zip(METRICS, (fd, fd * 1.05, 0.5), strict=True))
            last |= {f"metrics/{name}": value for name, value in found.items()}
            metrics.append(at | {f"metrics/{name}": value for name, value in found.items()})
            evaluations += [one | {"step": step} for one in map(_evaluation, found, found.values())]
            seconds = step * BATCH / (2000 + 10 * random.standard_normal())
            timing.append(at | {"seconds": seconds, "training_seconds": 0.9 * seconds, "memory_mb": 900.0})
    for name, lines in ((names.METRICS, metrics), (names.TIMING, timing), (names.EVALUATIONS, evaluations)):
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = {"status": "done", "step": steps, "metrics": last, "evaluations": evaluations[-len(METRICS) :]}
    (folder / names.RESULT).write_text(json.dumps(result | {"error": None, "seconds": timing[-1]["seconds"]}))
    (folder / names.RECORD).write_text(json.dumps(record, indent=1))


def _evaluation(name: str, value: float) -> dict[str, Any]:
    reference = {"dataset": "digits", "split": "train", "fingerprint": "afb72b9cff9b", "n": 1437}
    protocol = {"extractor": {"name": "digits"}, "samples": 1000, "solver": "ddim-20-eta0", "ema_decay": 0.98}
    found = {"name": name, "value": value, "better": METRICS[name], "units": "", "compared_by": "ratio"}
    return found | {"protocol": protocol | {"seed": "the run's", "reference": reference}}
