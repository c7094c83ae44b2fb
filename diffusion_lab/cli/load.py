"""A trained model from its run folder: the configuration of run.json with the weights of a checkpoint."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.build import build_denoiser
from diffusion_lab.cli.config import config_folders, plain
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors
from diffusion_lab.cli.foreign import read_back, refuse_links
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.same_run import differences
from diffusion_lab.cli.targets import PACKAGE_ONLY, Trust
from diffusion_lab.cli.validate import check_read_back
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.runs.names import CHECKPOINT, CHECKPOINTS, RECORD
from diffusion_lab.runs.record import read_record
from diffusion_lab.training import NewerCheckpoint, NoneIntact, Trained
from diffusion_lab.training.checkpoint_io import DamagedCheckpoint, load, newest_good

PARTS = ("dataset", "network", "schedule", "prediction", "variance", "preconditioning", "solver")


def trusted(cfg: DictConfig) -> Trust:
    """The user's classes that a run folder may name: those beside a --config-dir and in `allow`, as typed now."""
    return Trust.read(config_folders(), cfg.get("allow"))


def load_run(
    folder: str | Path, checkpoint: str = "last", weights: str = "ema", trust: Trust = PACKAGE_ONLY
) -> Trained:
    """Load a run. Its folder is not trusted: the whole configuration is checked before any part is built.

    Args:
        folder: a run folder.
        checkpoint: "last" for the newest intact one, or the name of a snapshot such as "step-00001000".
        weights: "ema" for the first average, "raw" for the model's own weights, or a decay such as "0.9999".
        trust: the classes that the run may name besides this package's.

    Raises:
        ConfigError: the folder is not a run, the checkpoint or average does not exist, or it is of another run.
        InvalidConfig: the run's configuration names a class that is not allowed.
    """
    folder = Path(folder)
    with config_errors(""):
        record = read_record(folder, "run")
    saved = record["config"]
    refuse_links(folder, "run")
    errors = check_read_back(saved, PARTS, trust)
    if errors:
        raise InvalidConfig(errors, f"run={folder}: ")
    cfg = read_back(saved)
    content = _content(folder / CHECKPOINTS, checkpoint)
    _check_origin(cfg, content, folder)
    parts = RunParts(cfg, trust)
    data = parts["dataset"]
    denoiser = build_denoiser(parts)
    prefix = "denoiser."
    own = {k.removeprefix(prefix): v for k, v in content["state_dict"].items() if k.startswith(prefix)}
    denoiser.load_state_dict(own)
    decay = _load_average(denoiser, content["callbacks"].get("EMA", {}), weights)
    identity = folder, plain(cfg), str(record.get("config_hash"))
    sampler = next((state for key, state in content["callbacks"].items() if key.startswith("TimestepSampling/")), {})
    return Trained(*identity, denoiser.eval(), data, content["global_step"], decay, sampler)


def _content(folder: Path, checkpoint: str) -> dict:
    try:
        return _read(folder, checkpoint)
    except (NoneIntact, NewerCheckpoint, DamagedCheckpoint) as error:
        raise ConfigError(f"checkpoint={checkpoint} must be one that can be used: {error}") from error


def _read(folder: Path, checkpoint: str) -> dict:
    if checkpoint == "last":
        newest = newest_good(folder)
        if newest is None:
            raise ConfigError(f"checkpoint={checkpoint} must exist in {folder}; train the run first")
        return newest[1]
    name = checkpoint.removesuffix(CHECKPOINT)
    names = [path.stem for path in sorted(folder.glob(f"*{CHECKPOINT}"))]
    if name not in names:  # also rejects a path to another folder
        raise ConfigError(f"checkpoint={checkpoint} must be one of {names}; set keep_every to keep more when training")
    return load(folder / f"{name}{CHECKPOINT}", map_location="cpu")


def _check_origin(cfg: DictConfig, content: dict, folder: Path) -> None:
    """Check that the checkpoint was written by this run, to which its results will be attributed.

    Raises:
        ConfigError: it has no record, or the record of a run with another configuration.
    """
    record = content.get("callbacks", {}).get("RunRecord")
    if not isinstance(record, dict) or "state_dict" not in content:
        raise ConfigError(f"run={folder}: the checkpoint must hold a run; it was written by another program")
    differ = differences(read_back(record.get("config")), cfg)
    if differ:
        key, (theirs, ours) = next(iter(differ.items()))
        raise ConfigError(
            f"run={folder}: the checkpoint must be this run's, and is of one with {key}={theirs} where {RECORD} has "
            f"{ours}; put each file back into the folder of its run"
        )


def _load_average(denoiser: Denoiser, averages: dict, weights: str) -> float | None:
    """Load the given average into the denoiser; returns its decay."""
    if weights == "raw" or (weights == "ema" and not averages):
        return None
    decay = next(iter(averages)) if weights == "ema" else weights
    if decay not in averages:
        raise ConfigError(f"weights={weights} must be 'ema', 'raw' or one of the decays {list(averages)}")
    denoiser.load_state_dict(averages[decay], strict=False)
    return float(decay)
