"""A sweep folder as training writes it, with curves of a realistic shape, made without training."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from PIL import Image

T, BINS, BATCH, STEPS, EVERY = 1000, 20, 64, 2000, 50
METHODS = {
    "uniform": {"_target_": "diffusion_lab.timesteps.Uniform", "num_timesteps": T},
    "logit_normal": {"_target_": "diffusion_lab.timesteps.LogitNormal", "num_timesteps": T, "mean": 0.0, "std": 1.0},
    "loss_second_moment": {
        "_target_": "diffusion_lab.timesteps.LossSecondMoment",
        "num_timesteps": T,
        "uniform": 0.001,
    },
    "stratified": {
        "_target_": "diffusion_lab.timesteps.Stratified",
        "base": {"_target_": "diffusion_lab.timesteps.Uniform"},
    },
}
CENTRES = (np.arange(BINS) + 0.5) * T / BINS


def config(method: str, seed: int, **changed) -> dict:
    """A resolved configuration; parts stand twice in it, as interpolation leaves them."""
    sampler = METHODS[method]
    return {
        "seed": seed,
        "max_steps": STEPS,
        "batch_size": BATCH,
        "precision": "32-true",
        "dataset": {"_target_": "diffusion_lab.data.ImageDataModule", "batch_size": BATCH, "seed": seed}
        | {"source": {"_target_": "diffusion_lab.data.Digits"}},
        "network": {"_target_": "diffusion_lab.networks.UNet", "_partial_": True, "base_channels": 32},
        "schedule": {"_target_": "diffusion_lab.diffusion.linear", "num_timesteps": T},
        "prediction": {"_target_": "diffusion_lab.diffusion.Epsilon"},
        "weighting": {"_target_": "diffusion_lab.diffusion.Unit"},
        "optimizer": {"_target_": "torch.optim.Adam", "lr": 2e-4},
        "solver": {"_target_": "diffusion_lab.solvers.DDIM", "steps": 50, "eta": 0.0},
        "sampler": sampler,
        "callbacks": {"timestep_sampling": {"_target_": "x.TimestepSampling", "sampler": sampler}},
        "paths": {"run_dir": f"runs/{method}-{seed}"},
    } | changed


def write_run(
    folder: Path, method: str, seed: int, *, steps: int = STEPS, result: str | None = "done", error=None, **changed
) -> dict[str, float]:
    """One run folder that got `steps` steps far; returns its last metrics."""
    folder.mkdir(parents=True)
    cfg = config(method, seed, **changed)
    group = json.dumps(cfg | {"seed": 0, "dataset": 0, "paths": 0}, sort_keys=True)
    info = {
        "run_id": folder.name,
        "name": None,
        "method": method,
        "seed": seed,
        "config": cfg,
        "config_hash": f"{hash((group, seed)) & 0xFFFFFFFF:08x}",
        "group_hash": f"{hash(group) & 0xFFFFFFFF:08x}",
        "overrides": [f"sampler={method}", f"seed={seed}"],
        "command": f"diffusion-lab train sampler={method} seed={seed}",
        "dataset": {"_target_": "diffusion_lab.data.Digits"},
        "versions": {"diffusion-lab": "0.1.0", "python": "3.11.2", "torch": "2.15.0"},
        "git": "0123456789abcdef0123456789abcdef01234567",
        "parameters": 1_234_567,
        "global_batch": BATCH,
        "started": f"2026-01-01T00:00:{list(METHODS).index(method):02d}+0000",
    }
    (folder / "run.json").write_text(json.dumps(info))
    (folder / "train.log").write_text("step 50/2000\n")
    rng = np.random.default_rng([seed, list(METHODS).index(method)])
    last = _write_lines(folder, method, rng, steps)
    if result is not None:
        content = {
            "status": result,
            "step": steps,
            "metrics": last,
            "evaluations": [],
            "seconds": _seconds(method, steps),
            "images_per_second": 1.0,
            "error": error,
        }
        (folder / "result.json").write_text(json.dumps(content))
    return last


def write_sweep(folder: Path, seeds: int = 2) -> None:
    """Four methods, `seeds` seeds each, and three runs that failed, run and were lost, and one that never began."""
    jobs = []

    def job(name: str, overrides: list[str]) -> Path:
        jobs.append({"dir": name, "overrides": overrides, "config_hash": name})
        return folder / name

    for method in METHODS:
        for seed in range(seeds):
            write_run(job(f"digits-{method}-s{seed}-aaaa", [f"sampler={method}", f"seed={seed}"]), method, seed)
    last = seeds
    error = {"type": "NonFiniteLoss", "message": "loss is nan at step 731,\n t=999", "traceback": "Traceback ..."}
    write_run(
        job("digits-uniform-s9-fail", ["sampler=uniform", f"seed={last}"]),
        "uniform",
        last,
        steps=731,
        result="failed",
        error=error,
    )
    write_run(
        job("digits-stratified-s9-run", ["sampler=stratified", f"seed={last}"]),
        "stratified",
        last,
        steps=1100,
        result=None,
    )
    write_run(
        job("digits-logit_normal-s9-lost", ["sampler=logit_normal", f"seed={last}"]),
        "logit_normal",
        last,
        steps=600,
        result=None,
    )
    job("digits-loss_second_moment-s9-pend", ["sampler=loss_second_moment", f"seed={last}"])
    seeds_text = ",".join(map(str, range(seeds + 1)))
    command = f"diffusion-lab train -m sampler={','.join(METHODS)} seed={seeds_text}"
    (folder / "sweep.json").write_text(json.dumps({"name": folder.name, "commands": [command], "jobs": jobs}))


def log(folder: Path, step: int, **values) -> None:
    """One more line of the run's metrics.jsonl; `__` in a name stands for the slash."""
    row = {"step": step, "images": step * BATCH} | {key.replace("__", "/"): value for key, value in values.items()}
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


def set_rate(folder: Path, rate: float) -> None:
    """Let the run have trained `rate` images per second."""
    images = STEPS * BATCH
    time = dict.fromkeys(("seconds", "training_seconds"), images / rate)
    (folder / "timing.jsonl").write_text(json.dumps({"step": STEPS, "images": images} | time) + "\n")


def loss_by_t(method: str, step: int, rng: np.random.Generator) -> np.ndarray:
    """(BINS,) falls with t and with training; a method that draws a range more often learns it a little better."""
    shape = 0.9 * np.exp(-CENTRES / 90) + 0.02 + 0.05 * np.exp(-CENTRES / 400)
    learning = 1 + 9 * np.exp(-step / (150 + 250 * np.exp(-CENTRES / 300)))
    gain = {"logit_normal": 0.06 * (np.abs(CENTRES - 500) / 250 - 1), "loss_second_moment": 0.04 * (CENTRES / 500 - 1)}
    return np.minimum(shape * learning * (1 + gain.get(method, 0)), 1.1) * (1 + 0.008 * rng.standard_normal(BINS))


def probabilities(method: str, step: int) -> np.ndarray:
    """(BINS,) what the sampler would draw."""
    if method == "logit_normal":
        t = (np.arange(T) + 0.5) / T
        p = np.exp(-0.5 * np.log(t / (1 - t)) ** 2) / (t * (1 - t))
        p = p.reshape(BINS, -1).sum(1)
    elif method == "loss_second_moment":
        p = 1 + min(1, step / 800) * (3 * np.exp(-CENTRES / 120) - 0.4)
    else:
        p = np.ones(BINS)
    return p / p.sum()


def _write_lines(folder: Path, method: str, rng: np.random.Generator, steps: int) -> dict[str, float]:
    last: dict[str, float] = {}
    counts = np.zeros(BINS)
    metrics, timing, evaluations = [], [], []
    for step in [*range(EVERY, steps, EVERY), steps]:
        where = {"step": step, "images": step * BATCH}
        p = probabilities(method, step)
        counts += rng.multinomial(BATCH * EVERY, p)
        objective = np.ones(BINS) if method == "loss_second_moment" else p
        row = {"train/loss": 0.1 + math.exp(-step / 300), "sampler/p": p.tolist(), "optim/lr": 2e-4}
        row |= {
            "sampler/drawn": (counts / counts.sum()).tolist(),
            "sampler/objective": (objective / objective.sum()).tolist(),
        }
        metrics.append(where | row)
        seconds = _seconds(method, step)
        time = {"seconds": seconds, "training_seconds": seconds}
        timing.append(where | time | {"images_per_second": 2000.0, "memory_mb": 700.0})
        if step % 250 == 0:
            loss = loss_by_t(method, step, rng)
            best = {"uniform": 2.0, "logit_normal": 1.45, "loss_second_moment": 2.3, "stratified": 1.9}[method]
            fd = (best + 120 * math.exp(-step / 260)) * math.exp(0.04 * rng.standard_normal())
            last = {
                "metrics/fd1k_digits": fd,
                "metrics/precision1k_digits": 0.9 - fd / 300,
                "val/loss": float(loss.mean()),
            }
            metrics += [where | {"val/loss": last["val/loss"], "val/loss_t": loss.tolist()}]
            metrics += [where | {k: v for k, v in last.items() if k != "val/loss"}]
            evaluations += [evaluation(step, k.removeprefix("metrics/"), v) for k, v in last.items() if "metrics" in k]
            _write_samples(folder / "samples" / f"step-{step:08d}.png", rng, fd)
    for name, lines in (("metrics", metrics), ("timing", timing), ("evaluations", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return last


def _seconds(method: str, step: int) -> float:
    rate = {"uniform": 2340, "logit_normal": 2310, "loss_second_moment": 2190, "stratified": 2335}[method]
    return round(step * BATCH / rate, 3)


def evaluation(step: int, name: str, value: float) -> dict:
    protocol = {
        "extractor": {"name": "digits", "weights_sha256": "abc"},
        "samples": 1000,
        "solver": "ddim-50-eta0",
        "ema_decay": 0.9999,
        "reference": {
            "dataset": "digits",
            "split": "train",
            "fingerprint": "0123456789ab",
            "n": 1500,
            "shape": [1, 8, 8],
        },
        "seed": 0,
    }
    better = "higher" if name.startswith("precision") else "lower"
    return {"step": step, "name": name, "value": value, "better": better, "units": "", "protocol": protocol}


def _write_samples(path: Path, rng: np.random.Generator, noise: float, side: int = 8) -> None:
    """Rings that become clearer as the metric falls."""
    y, x = np.mgrid[:8, :8] - 3.5
    widths = (1 + 0.5 * (np.arange(side * side) % 3))[:, None, None]
    rings = np.exp(-((np.hypot(x * widths, y) - 2.5) ** 2))
    images = np.clip(255 * (rings + noise / 60 * rng.standard_normal(rings.shape)), 0, 255).astype(np.uint8)
    framed = np.pad(images.repeat(6, 1).repeat(6, 2), ((0, 0), (2, 0), (2, 0)), constant_values=255)
    grid = framed.reshape(side, side, 50, 50).swapaxes(1, 2).reshape(side * 50, side * 50)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.pad(grid, ((0, 2), (0, 2)), constant_values=255)).save(path, compress_level=1)
