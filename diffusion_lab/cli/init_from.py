"""Start a run from trained weights: `train init_from=...`.

The run is a new one, from step 0 with a fresh optimizer; its averages start at the loaded weights. Tensors that depend
on the number of output channels or of classes may differ from those of the source and then keep their initial values;
all others must fit. A run that has a checkpoint continues from it and needs the source no more.

The folder of the source is not trusted. Its configuration is checked as for `load.load_run`, although no part of it is
built, and its weights are read as tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, open_dict
from torch import Size, Tensor, nn

from diffusion_lab.cli.build_model import network_arguments
from diffusion_lab.cli.checks.recorded_config import checked_config
from diffusion_lab.cli.config import config_folders
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.init_weights import (
    BESIDE,
    PREFIX,
    InitWeights,
    free_init_weights,
    parse_init_from,
    read_init_weights,
)
from diffusion_lab.cli.own_run import read_run_record
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.same_run import check_origin
from diffusion_lab.cli.targets import Trust
from diffusion_lab.cli.untrusted_run import recorded_init_identity
from diffusion_lab.networks.checks import keywords
from diffusion_lab.runs.names import CHECKPOINT, CHECKPOINTS
from diffusion_lab.training.weight_matching import WeightMatch, match_weights, without_prefix

NETWORK = "network."  # of the network's tensors in those of a denoiser


def check_start(cfg: DictConfig, parts: RunParts) -> list[ConfigError]:
    """What forbids a run to start from `init_from`."""
    try:
        if isinstance(cfg.init_from, str):
            source_of(cfg, parts)
        elif isinstance(cfg.init_from, DictConfig):
            _check_continues(cfg)
        else:
            cure = "use a run folder or a file of weights; for several runs -m init_from=A,B"
            return [ConfigError(f"init_from={cfg.init_from} must be text; {cure}")]
    except InvalidConfig as error:
        return error.errors
    except ConfigError as error:
        return [error]
    return []


def source_of(cfg: DictConfig, parts: RunParts) -> tuple[dict[str, Any], WeightMatch]:
    """The value of `init_from` for the record of the run, and the tensors to load.

    Raises:
        ConfigError, InvalidConfig: the source does not exist, is damaged, is of another network, or asks for a class
            that is not allowed.
    """
    source = read_init_weights(cfg.init_from)
    if not parse_init_from(cfg.init_from).is_file:
        _check_folder(cfg, source)
    wanted = _shapes(parts)
    given = source.tensors
    if source.saved is None:
        names = [name.removeprefix(NETWORK) for name in wanted if name.startswith(NETWORK)]
        given = {NETWORK + name: value for name, value in without_prefix(given, names).items()}
    wanted, given = _without_other_statistics(wanted, given)
    try:
        found = match_weights(wanted, given, _free(parts))
    except ValueError as error:
        raise ConfigError(f"init_from={cfg.init_from} {error}") from error
    return {"source": cfg.init_from} | source.identity | {"not_loaded": found.sentence or None}, found


def load_start(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy the tensors that fit into the denoiser of the module that trains."""
    state = module.state_dict()
    with torch.no_grad():
        for name, value in tensors.items():
            state[PREFIX + name].copy_(value)
    free_init_weights()


def with_start(cfg: DictConfig, start: dict[str, Any] | None) -> DictConfig:
    """A copy in which `init_from` is what the run records of it."""
    recorded = cfg.copy()
    with open_dict(recorded):
        recorded.init_from = start
    return recorded


def recorded_start(saved: dict[str, Any]) -> dict[str, Any] | None:
    """`init_from` in the configuration of a checkpoint, as a run records it: what identifies the source, where it was
    and what was not loaded, as texts. The checkpoint is not signed, and the record that gets this may be."""
    identity, start = recorded_init_identity(saved), saved.get("init_from")
    if identity is None or not isinstance(start, dict):
        return None
    texts = {key: start[key] if start[key] is None else str(start[key]) for key in BESIDE if key in start}
    return identity | texts


def _check_folder(cfg: DictConfig, source: InitWeights) -> None:
    """The checks of `load_run`, of a folder whose weights alone are used."""
    place = parse_init_from(cfg.init_from).place
    named, trust = f"init_from={place}", Trust.read(config_folders(), cfg.get("allow"))
    record, trust = read_run_record(place, "init_from", trust)
    check_origin(checked_config(record["config"], (), trust, named), source.saved, named)


def _check_continues(cfg: DictConfig) -> None:
    """`init_from` is what identifies a source, as in the record of a run: it has no weights to start from."""
    folder = Path(cfg.paths.run_dir)
    if cfg.get("anew") or not any((folder / CHECKPOINTS).glob(f"*{CHECKPOINT}")):
        raise ConfigError(
            f"resume={folder} must hold a checkpoint, because it started from other weights, and step 0 needs them; "
            "repeat the run's first command, with init_from=DIR"
        )


def _shapes(parts: RunParts) -> dict[str, Size]:
    """Shapes of the tensors of the run's denoiser, whose only parts with a state are network and prediction."""
    network = _of_network(parts["network"], network_arguments(parts))
    shapes = {f"{NETWORK}{name}": shape for name, shape in network.items()}
    return shapes | {f"prediction.{name}": value.shape for name, value in parts["prediction"].state_dict().items()}


def _without_other_statistics(
    wanted: dict[str, Size], given: dict[str, Tensor]
) -> tuple[dict[str, Size], dict[str, Tensor]]:
    """Both without what is not the network's, unless it is the same: what a prediction of several heads tracks is no
    weight, and starts from random values with another prediction."""
    theirs = {name: value.shape for name, value in given.items()}
    same = _beside(wanted) == _beside(theirs)
    kept = {name for name in wanted.keys() | given.keys() if same or name.startswith(NETWORK)}
    return {n: v for n, v in wanted.items() if n in kept}, {n: v for n, v in given.items() if n in kept}


def _beside(shapes: dict[str, Size]) -> dict[str, Size]:
    return {name: shape for name, shape in shapes.items() if not name.startswith(NETWORK)}


def _free(parts: RunParts) -> set[str]:
    """Tensors of the network whose shape or presence depends on the number of output channels or of classes."""
    make, given = parts["network"], network_arguments(parts)
    own, free = _of_network(make, given), set[str]()
    others: list[dict[str, Any]] = [{"out_channels": 2 * given["out_channels"]}]
    if keywords(make).takes("num_classes"):
        labels = given.get("num_classes")
        others += [{"num_classes": None}] if labels is not None else []
        others += [{"num_classes": (labels or 1) + 1}]
    for other in others:
        shapes = _of_network(make, given | other)
        free |= {name for name in own.keys() | shapes.keys() if own.get(name) != shapes.get(name)}
    return {NETWORK + name for name in free}


def _of_network(make: Callable[..., nn.Module], given: dict[str, Any]) -> dict[str, Size]:
    """Shapes of a network's tensors, without memory for them."""
    with torch.device("meta"):
        return {name: value.shape for name, value in make(**given).state_dict().items()}
