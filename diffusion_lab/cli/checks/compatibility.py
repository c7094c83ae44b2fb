"""Checks that parts agree with each other: one sentence for each disagreement."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import get_method
from omegaconf import DictConfig, OmegaConf
from torch import nn

from diffusion_lab.annealing import Constant
from diffusion_lab.auxiliary import Auxiliary
from diffusion_lab.callbacks import AnnealingCallback, HeadTracking, TimestepSampling, WeightNormalization
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.data import Conditions, ImageDataModule
from diffusion_lab.diffusion import Prediction, Weighting
from diffusion_lab.networks.checks import layer_fault
from diffusion_lab.runs.trained_run import TrainedRun
from diffusion_lab.solvers import Solver
from diffusion_lab.timesteps import TimestepSampler, Uniform
from diffusion_lab.training import ModelKind, RunModule


def guidance_fault(solver: Solver, conditions: Conditions) -> str | None:
    """Guidance needs a model that was trained with label dropout."""
    if not solver.needs_null_label or conditions.label_dropout > 0:
        return None
    return (
        f"solver={type(solver).__name__} must have a model that was trained with label dropout; train with "
        "dataset.conditional=true dataset.label_dropout=0.1, or use another solver"
    )


def other_images(parts: RunParts, data: ImageDataModule) -> Iterator[str]:
    """A trained run that a part uses must be of images of the same shape and with the same classes."""
    for path, made in parts.built():
        if isinstance(made, TrainedRun) and made.is_open:
            other = made.opened().data
            of = {"images of the shape": [one.shape for one in (data, other)]}
            of["classes, in number,"] = [one.conditions.num_classes for one in (data, other)]
            for what, (own, its) in of.items():
                if own != its:
                    yield (
                        f"{path}.run={made.run} must have the {what} of this run, {own}, and has {its}; use a run on "
                        "the same data"
                    )


def order_fault(cfg: DictConfig, data: ImageDataModule) -> str | None:
    """The order of the images must be given to the data set, which a file of the user's own may not do."""
    if data.image_order is not None:
        return None
    name = cfg.order._target_.rpartition(".")[2]
    return f"order={name} must be given to the data set; add `order: ${{order}}` to its yaml file, or use order=null"


def layer_faults(network: nn.Module, losses: Mapping[str, Auxiliary]) -> Iterator[str]:
    """Each layer that an auxiliary loss names must be inside the network."""
    for path, loss in losses.items():
        for layer in loss.layers:
            if fault := layer_fault(network, layer, f"{path}.layers"):
                yield fault


def time_map_faults(kind: type[ModelKind], parts: Mapping[str, Any]) -> Iterator[str]:
    """With a map of times an image has no timestep of its own, of which its loss would tell a part anything."""
    if not getattr(kind, "time_maps", False):
        return
    for group, base, cure in (
        ("sampler", TimestepSampler, "uniform"),
        ("weighting", Weighting, "unit"),
        ("prediction", Prediction, "v"),
    ):
        found = [part for part in getattr(parts.get(group), "modules", list)() if isinstance(part, base)]
        if base is TimestepSampler:  # one around others observes for these
            found = [part for part in found if not any(isinstance(child, base) for child in part.children())]
        if any(type(part).observe is not base.observe or getattr(part, "uses_record", False) for part in found):
            yield (
                f"{group}={type(parts[group]).__name__} must not depend on the rows of an update with "
                f"model={kind.__name__}, whose images have a timestep for each position; use {group}={cure}"
            )


def missing_callbacks(parts: Mapping[str, Any], callbacks: Iterable[Any]) -> Iterator[str]:
    """A part that acts through a callback needs it: without it a run would not be the method in its record."""
    acting = tuple(callbacks)
    sampler, annealing, weighting, prediction = (
        parts.get(group) for group in ("sampler", "annealing", "weighting", "prediction")
    )
    names = {group: f"{group}={type(part).__name__}" for group, part in parts.items()}
    norm = getattr(weighting, "normalize", "none")
    names["weighting"] = f"weighting.normalize={norm}"
    for kind, key, needed, group, cure in (
        (TimestepSampling, "timestep_sampling", type(sampler) not in (Uniform, NoneType), "sampler", "sampler=uniform"),
        (AnnealingCallback, "annealing", type(annealing) is not Constant, "annealing", "annealing=constant"),
        (WeightNormalization, "weight_normalization", norm != "none", "weighting", "weighting.normalize=none"),
        (HeadTracking, "head_tracking", getattr(prediction, "heads", 1) > 1, "prediction", "a prediction of one head"),
    ):
        if needed and not any(isinstance(callback, kind) for callback in acting):
            yield f"callbacks.{key}=null must be a {kind.__name__} with {names[group]}; leave it in, or use {cure}"


def unfit_callbacks(kind: type[ModelKind], callbacks: Mapping[str, Any]) -> Iterator[str]:
    """Each callback must work with the module of this kind of model."""
    for name, callback in callbacks.items():
        drives = getattr(callback, "drives", RunModule)
        if not issubclass(kind.trains, drives):
            why = f"it works with {drives.__name__}, and this run has {kind.trains.__name__}"
            yield f"callbacks.{name}={type(callback).__name__} must be null, because {why}; use callbacks.{name}=null"


def sharding_faults(cfg: DictConfig, sampler: Any) -> Iterator[str]:
    """No part of a run with a sharded network may need the whole network in each process."""
    if cfg.precision == "16-mixed":
        yield "precision=16-mixed must be bf16-mixed or 32-true with trainer=fsdp: its loss scale is each process's own"
    for key in ("channels_last", "compile"):
        if cfg[key]:
            yield f"{key}=true must be false with trainer=fsdp, which cuts up plain tensors of a plain network"
    if sampler is not None and any(getattr(part, "uses_probe", False) for part in sampler.modules()):
        yield (
            f"sampler={type(sampler).__name__} must have the whole network on each process, because it evaluates its "
            "loss beside training; use trainer=ddp, or another sampler"
        )


def deleted_faults(cfg: DictConfig, overrides: Sequence[str]) -> Iterator[str]:
    """No argument that its part accepts may be deleted with `~`, because its default would not be recorded.

    A part of a family, `~callbacks.validation`, may be deleted, and so may an argument that the class does not have.
    """
    for word in overrides:
        if not word.startswith("~"):
            continue
        key = word[1:].partition("=")[0]
        parent, _, name = key.rpartition(".")
        node = OmegaConf.select(cfg, parent) if parent else None
        if not isinstance(node, DictConfig) or "_target_" not in node or name in node:
            continue
        taken = inspect.signature(get_method(node["_target_"])).parameters.get(name)
        if taken is not None and taken.default is not taken.empty:
            default = "null" if taken.default is None else taken.default
            own = f"{node['_target_']} would use its own default {default}"
            yield f"~{key} must not be deleted, because {own}; write {key}={default}"


def typed() -> list[str]:
    """The overrides of the running command, or of the job that is being checked."""
    return list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else []
