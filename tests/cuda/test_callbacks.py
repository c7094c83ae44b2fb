"""A whole run on the paper GPU with every callback at work: logs, evaluations with metrics, checkpoints, and a
resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from tests.cuda.training import CONF, configured, train
from tests.cuda.waits import not_allowed

EVERYTHING = [
    "log_every=1",
    "snapshot_every=2",
    "metrics_every=0",
    "checkpoint_every=2",
    "keep_every=2",
    "callbacks.guard.every=1",
    "callbacks.progress.every=0.001",
    "callbacks.weight_normalization.every=1",
    "callbacks.ema.decays=[0.9,0.99]",
    "solver.steps=2",
    "metrics.num_samples=140",
    "metrics.batch_size=70",
]
PARTS = ["weighting=uncertainty", "weighting.normalize=mean1_sampler", "prediction=mixed", "sampler=equal_loss_slots"]


def everything(folder: Path, *more: str) -> Any:
    """The configuration of a run in which all callbacks act; the harness leaves `generation` out, which is slow."""
    cfg = configured(folder, None, *EVERYTHING, *more)
    order = OmegaConf.load(CONF / "callbacks" / "default.yaml")
    with open_dict(cfg):
        cfg.callbacks = {name: cfg.callbacks.get(name, order._get_node(name)) for name in order}
        cfg.callbacks.generation.grid = 4
    assert all(node is not None for node in cfg.callbacks.values())
    return cfg


def test_every_callback_at_every_step(tmp_path: Path) -> None:
    watched = train(everything(tmp_path, *PARTS))
    assert not_allowed(watched.all) == {}
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"metrics.jsonl", "timing.jsonl", "evaluations.jsonl", "result.json", "last.ckpt"} <= names
    assert {"step-00000002.png", "step-00000002.ckpt"} <= names
