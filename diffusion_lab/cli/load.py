"""A trained model from its run folder: the configuration of run.json with the weights of a checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.build import build_denoiser, part
from diffusion_lab.cli.config import completed
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.validate import check_read_back
from diffusion_lab.data import ImageDataModule
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.training.checkpoint_io import load, newest_good

PARTS = ("dataset", "network", "schedule", "prediction", "variance", "preconditioning", "solver")


@dataclass
class Trained:
    """A denoiser in eval mode with its data, the step of its weights, and their average's decay (None: raw)."""

    cfg: DictConfig
    denoiser: Denoiser
    data: ImageDataModule
    step: int
    decay: float | None


def load_run(folder: str | Path, checkpoint: str = "last", weights: str = "ema") -> Trained:
    """Load a run.

    Args:
        folder: a run folder.
        checkpoint: "last" for the newest intact one, or the name of a snapshot such as "step-00001000".
        weights: "ema" for the first average, "raw" for the model's own weights, or a decay such as "0.9999".

    Raises:
        ConfigError: no run there, no such checkpoint or average; names what there is.
        InvalidConfig: the run's configuration names a class that is not allowed.
    """
    folder = Path(folder)
    if not (folder / "run.json").is_file():
        raise ConfigError(f"run={folder} must be a run folder with a run.json; `diffusion-lab report DIR` lists runs")
    facts = json.loads((folder / "run.json").read_text())
    cfg = OmegaConf.create(facts["config"])
    assert isinstance(cfg, DictConfig)
    cfg = completed(cfg)
    errors = check_read_back(cfg, PARTS)  # a run folder may come from anybody
    if errors:
        raise InvalidConfig(errors)
    content = _content(folder / "checkpoints", checkpoint)
    data = part(cfg, "dataset")
    denoiser = build_denoiser(cfg, data)
    prefix = "denoiser."
    own = {k.removeprefix(prefix): v for k, v in content["state_dict"].items() if k.startswith(prefix)}
    denoiser.load_state_dict(own)
    decay = _load_average(denoiser, content["callbacks"].get("EMA", {}), weights)
    return Trained(cfg, denoiser.eval(), data, content["global_step"], decay)


def _content(folder: Path, checkpoint: str) -> dict:
    if checkpoint == "last":
        found = newest_good(folder)
        if found is None:
            raise ConfigError(f"checkpoint={checkpoint} must exist in {folder}; train the run first")
        return found[1]
    path = folder / f"{checkpoint.removesuffix('.ckpt')}.ckpt"
    if not path.is_file():
        names = ["last", *sorted(p.stem for p in folder.glob("step-*.ckpt"))]
        raise ConfigError(f"checkpoint={checkpoint} must be one of {names}; set keep_every to keep more when training")
    return load(path, map_location="cpu")


def _load_average(denoiser: Denoiser, averages: dict, weights: str) -> float | None:
    """Put the asked average into the denoiser; its decay."""
    if weights == "raw" or (weights == "ema" and not averages):
        return None
    decay = next(iter(averages)) if weights == "ema" else weights
    if decay not in averages:
        raise ConfigError(f"weights={weights} must be 'ema', 'raw' or one of the decays {list(averages)}")
    denoiser.load_state_dict(averages[decay], strict=False)
    return float(decay)
