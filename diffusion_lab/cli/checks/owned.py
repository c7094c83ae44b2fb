"""Keys of parts that repeat a setting of the run: they have its value, or the run would end at another step, in other
numbers or in another folder than its record says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.runs.names import CHECKPOINTS

# key of a part -> the setting that one would type
REPEATED = {
    "trainer.max_steps": "max_steps",
    "trainer.precision": "precision",
    "trainer.accumulate_grad_batches": "accumulate",
    "trainer.gradient_clip_val": "gradient_clip",
    "dataset.batch_size": "batch_size",
    "dataset.accumulate": "accumulate",
    "callbacks.generation.directory": "paths.run_dir",
    "callbacks.progress.directory": "paths.run_dir",
    "callbacks.checkpoint.directory": "paths.run_dir",
}
BELOW = {"callbacks.checkpoint.directory": f"/{CHECKPOINTS}"}  # where a run that goes on looks for them
# Lightning's other ways to end a run before its last step, and what switches each off.
ENDS = {"max_epochs": (-1, None), "max_time": (None,), "limit_train_batches": (None, 1.0), "fast_dev_run": (False,)}
ENDS |= {"overfit_batches": (0.0,)}


def owned_faults(cfg: DictConfig) -> Iterator[str]:
    """A sentence for each key that contradicts the setting it repeats.

    Args:
        cfg: a composed configuration of `train`, in which anything may be missing.
    """
    for key, setting in REPEATED.items():
        parent, _, name = key.rpartition(".")
        node = _value(cfg, parent)
        if not isinstance(node, DictConfig):
            continue
        wanted = _value(cfg, setting)
        wanted = f"{wanted}{BELOW[key]}" if key in BELOW else wanted
        if name not in node:
            yield f"~{key} must not be said, because {setting}={_shown(wanted)} reaches the run there; leave it out"
        elif _value(cfg, key) != wanted:
            own = "the run's own folder" if setting == "paths.run_dir" else f"{setting}={_shown(wanted)}"
            cure = "set paths.root for another place" if setting == "paths.run_dir" else f"set {setting}"
            yield f"{key}={_shown(_value(cfg, key))} must be {own}; leave it out, and {cure}"
    trainer = _value(cfg, "trainer")
    for name, off in ENDS.items():
        if isinstance(trainer, DictConfig) and name in trainer and trainer[name] not in off:
            yield (
                f"trainer.{name}={_shown(trainer[name])} must be {_shown(off[0])}, because a run ends at max_steps; "
                "leave it out, and set max_steps"
            )


def _value(cfg: DictConfig, key: str) -> Any:
    """The value, None where there is none or its reference leads nowhere, which others say."""
    try:
        return OmegaConf.select(cfg, key)
    except OmegaConfBaseException:
        return None


def _shown(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
