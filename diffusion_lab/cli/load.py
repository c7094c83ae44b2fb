"""A trained model from its run folder: the configuration of run.json with the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from omegaconf import DictConfig

from diffusion_lab.cli.averages import average_of
from diffusion_lab.cli.build_model import build_model
from diffusion_lab.cli.checks.recorded_config import checked_config
from diffusion_lab.cli.config import config_folders, plain
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.init_weights import checkpoint_content, checksum_of_run, config_in_checkpoint, named_weights
from diffusion_lab.cli.moved_images import with_places
from diffusion_lab.cli.own_run import read_run_record
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.same_data import recorded_data
from diffusion_lab.cli.same_run import check_origin
from diffusion_lab.cli.targets import PACKAGE_ONLY, Trust
from diffusion_lab.cli.untrusted_run import check_read_paths, without_outside_paths
from diffusion_lab.data import ImageSource
from diffusion_lab.runs.names import CHECKPOINTS
from diffusion_lab.runs.signature import is_own
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.training import Continuation, TrainedModel

PARTS = ("model", "dataset", "network", "optimizer")  # of every kind of model


def trusted(cfg: DictConfig) -> Trust:
    """The user's classes that a run folder may name: those beside a --config-dir and in `allow`, as typed now."""
    return Trust.read(config_folders(), cfg.get("allow"))


def load_run(
    folder: str | Path,
    checkpoint: str = "last",
    weights: str = "ema",
    trust: Trust = PACKAGE_ONLY,
    key: str = "run",
    reads_data: bool = True,
    moved: Mapping[str, Any] = MappingProxyType({}),
) -> TrainedModel:
    """Load a run. Unless this user has signed it, its folder is not trusted; the whole configuration is checked before
    any part is built.

    Args:
        folder, checkpoint, weights: as of `from_python.load_run`.
        trust: the classes that the run may name besides this package's.
        key: what the user calls the folder, for the errors.
        reads_data: whether its data set will be read, so that a folder of somebody else's must not say where it is.
        moved: {key: place} of its images, where they are now, as typed.

    Raises:
        ConfigError: the folder is not a run, the checkpoint or average does not exist, or it is of another run.
        InvalidConfig: the run's configuration names a class that is not allowed.
    """
    folder = Path(folder)
    named = f"{key}={folder}"
    record, trust = read_run_record(folder, key, trust)
    cfg, kind, built = _checked(record["config"], trust, named)
    content = checkpoint_content(folder / CHECKPOINTS, checkpoint)
    check_origin(cfg, config_in_checkpoint(content), named)
    known = recorded_data(record, named)
    there = cfg if is_own(record) else DictConfig(without_outside_paths(plain(cfg), folder))
    parts = RunParts(with_places(there, moved), trust)
    data = parts["dataset"]  # which has read no file yet
    if not is_own(record):
        decoded = type(data.source).to_pixels is not ImageSource.to_pixels  # by files that lie with its latents
        built -= set() if reads_data or decoded or data.conditions.task.paired else {"dataset"}
        check_read_paths(plain(cfg), built, folder, trust, named, moved)
    data.as_recorded(known)
    whole, states = build_model(parts), content["state_dict"].items()
    whole.load_state_dict({k.removeprefix(kind.prefix): v for k, v in states if k.startswith(kind.prefix)})
    decay, averaged = average_of(folder, content, weights)
    kind.generating(whole).load_state_dict(averaged, strict=False)  # no buffers
    identity = folder, plain(cfg), str(record.get("config_hash"))
    state = partial(_optimizer_state, folder / CHECKPOINTS, checkpoint) if decay is None else lambda: None
    continuation = Continuation(parts["optimizer"], state, cfg.get("gradient_clip"))
    step, callbacks = content["global_step"], content["callbacks"]
    trained = kind.trained(identity, whole.eval(), data, step, decay, callbacks, continuation)
    trained.own_solver = partial(_own_solver, kind, parts, trust)
    return trained


def open_runs(parts: RunParts, trust: Trust = PACKAGE_ONLY) -> None:
    """Load the trained runs that parts use, of those that are built.

    Raises:
        ConfigError, InvalidConfig: as `load_run`; or the weights are not those of the recorded checksum.
    """
    for path, made in parts.built():
        if not isinstance(made, TrainedRun) or made.is_open:
            continue
        found, key = named_weights(made.run), f"{path}.run"
        model = load_run(found.place, found.checkpoint, found.weights, trust, key, reads_data=False)
        if checksum_of_run(made.run) != made.checksum:
            raise ConfigError(
                f"{key}={made.run} must have the weights of the checksum {made.checksum}, with which it was used "
                "before, and they have changed; name a checkpoint that stays, as in DIR:step-00001000"
            )
        made.open(model)


def _own_solver(kind: Any, parts: RunParts, trust: Trust) -> Any:
    solver = kind.solver(parts)
    open_runs(parts, trust)
    return solver


def _checked(saved: Any, trust: Trust, named: str) -> tuple[DictConfig, Any, set[str]]:
    """The configuration of a run, its kind of model, and the top-level nodes that are built of it."""
    cfg = checked_config(saved, PARTS, trust, named)
    kind = RunParts(cfg, trust)["model"]
    built = (*PARTS, *kind.parts, *(() if "solver" in kind.unused else ("solver",)))
    checked_config(cfg, built, trust, named)
    return cfg, kind, set(built)


def _optimizer_state(folder: Path, checkpoint: str) -> dict[str, Any]:
    """Read again when it is needed, because it takes twice the memory of the weights."""
    return deepcopy(checkpoint_content(folder, checkpoint)["optimizer_states"][0])
