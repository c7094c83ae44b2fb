"""The numbers of `diffusion-lab show`: p and w of one composed configuration before training, and of a run at its last
checkpoint, beside step 0."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import DictConfig

from diffusion_lab.cli.checks.method import METHOD, check_method, part_errors
from diffusion_lab.cli.checks.nodes import check_some
from diffusion_lab.cli.checks.recorded_config import checked_config
from diffusion_lab.cli.checks.typed_keys import with_keys_to_type
from diffusion_lab.cli.config import choices_of, conf_dir, plain
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, describe
from diffusion_lab.cli.init_weights import checkpoint_content, config_in_checkpoint
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import described
from diffusion_lab.cli.own_run import read_run_record
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.same_data import recorded_data
from diffusion_lab.cli.same_run import check_origin
from diffusion_lab.cli.targets import Trust
from diffusion_lab.cli.untrusted_run import check_read_paths, recorded_config, without_outside_paths
from diffusion_lab.diffusion.weighting import Weighting, native_scales
from diffusion_lab.reports.timestep_numbers import TimestepNumbers
from diffusion_lab.runs.names import CHECKPOINTS
from diffusion_lab.runs.signature import is_own

SHAPE = (1, 8, 8)  # of the images for which a sampler with a network of its own makes it; p before training needs none


def numbers_before_training(
    name: str, cfg: DictConfig, step: int, loss: str, config_dirs: list[str]
) -> TimestepNumbers:
    """Build schedule, prediction, weighting and sampler and evaluate them at one optimizer step, untrained.

    Raises:
        ConfigError: the model is not a diffusion model, or a part of the user's own raises an error.
        InvalidConfig: what `train` reports of these parts.
    """
    check_diffusion(name, cfg)
    trust = Trust.typed(config_dirs)
    if errors := check_some(cfg, trust, METHOD):
        raise InvalidConfig([ConfigError(with_keys_to_type(cfg, str(error))) for error in errors])
    parts = RunParts(cfg, trust)
    set_up_parts(parts, SHAPE)
    found = numbers_at_step(name, parts, step, loss)
    notes = [_note_on_sampler(found, parts, cfg, config_dirs), _note_on_weighting(parts["weighting"])]
    return replace(found, note="; ".join(filter(None, notes)))


def _note_on_sampler(found: TimestepNumbers, parts: RunParts, cfg: DictConfig, config_dirs: list[str]) -> str:
    # A sampler that learns has state to save, as rule 4 of its contract demands; a wrapper has that of its base.
    if not parts["sampler"].state_dict():
        return ""
    flat = bool(abs(found.p - 1 / len(found.p)).max() < 1e-9)
    note = "p is the one before training: " + ("uniform until" if flat else "it changes once")
    return f"{note} the sampler has learned from the losses{_how(cfg, config_dirs)}"


def _note_on_weighting(weighting: Weighting) -> str:
    if weighting.uses_record:
        return "w leaves out what the weighting makes of each row's own loss"
    learns = any(True for _ in weighting.parameters()) or type(weighting).observe is not Weighting.observe
    return "w is the one before training, which the weighting learns" if learns else ""


def _how(cfg: DictConfig, config_dirs: list[str]) -> str:
    """What the sampler is for, in the words of its yaml file or docstring."""
    option, folders = choices_of(cfg).get("sampler"), [conf_dir(), *map(Path, config_dirs)]
    if option is None or option not in files.options("sampler", folders):
        return ""
    purpose = described("sampler", str(option), folders).purpose
    return f". {purpose}" if purpose else ""


def check_diffusion(name: str, cfg: DictConfig) -> None:
    """Raise ConfigError unless a configuration has the parts that `show` evaluates."""
    lacks = [part for part in METHOD if cfg.get(part) is None]
    if lacks:
        raise ConfigError(f"{name} must be a diffusion model, and it has no {lacks[0]}; leave it out")


def set_up_parts(parts: RunParts, shape: tuple[int, ...]) -> None:
    """Build and check the parts, and the networks that the sampler makes for images of a shape, as at a run's start;
    InvalidConfig as `train` reports it."""
    if errors := check_method(parts):
        raise InvalidConfig(errors)
    with part_errors("sampler", parts.cfg):
        torch.manual_seed(0)
        parts["sampler"].setup(shape)


def numbers_at_step(name: str, parts: RunParts, step: int, loss: str, note: str = "") -> TimestepNumbers:
    """p and w of parts at an optimizer step, in the state in which they are."""
    schedule, sampler, weighting = parts["schedule"], parts["sampler"], parts["weighting"]
    snr, scale = schedule.snr, native_scales(schedule, parts["prediction"])
    with torch.no_grad(), part_errors("sampler", parts.cfg):
        p = sampler.probabilities(step).double()
        drawn = sampler.weight(torch.arange(len(snr)), step).double()
    with torch.no_grad(), part_errors("weighting", parts.cfg):
        weighting.refresh(snr, scale, p * drawn, step)
        native = weighting.native_weight(snr, scale, step).double() * weighting.factor
    per_native = {"native": 1.0, "x0": scale, "eps": scale / snr}[loss]
    return TimestepNumbers(name, schedule.log_snr.numpy(), p.numpy(), (drawn * native * per_native).numpy(), note)


def numbers_of_run(folder: Path, loss: str, trust: Trust, suffix: str = "") -> list[TimestepNumbers]:
    """A run at its last checkpoint and, where that differs, at step 0, with the weight of `loss`; names end in
    `suffix`.

    The folder is not trusted (docs/safety.md): its whole configuration is checked before any part is built, and of the
    checkpoint, which may hold only tensors and plain containers, the state of sampler and weighting alone is used.

    Raises:
        ConfigError: it is no run of a diffusion model, has no intact checkpoint, or one of another run.
        InvalidConfig: the run's configuration names a class that is not allowed.
    """
    record, trust = read_run_record(folder, "run", trust)
    data, cfg = recorded_data(record, f"run={folder}"), recorded_config(record["config"])
    check_diffusion(f"run={folder}", cfg)
    checked_config(cfg, (*METHOD, "dataset"), trust, f"run={folder}")
    content = checkpoint_content(folder / CHECKPOINTS, "last")
    check_origin(cfg, config_in_checkpoint(content), f"run={folder}")
    if not is_own(record):
        cfg = DictConfig(without_outside_paths(plain(cfg), folder))
        check_read_paths(plain(cfg), METHOD, folder, trust, f"run={folder}")
    parts = RunParts(cfg, trust)
    set_up_parts(parts, data.shape)
    before = numbers_at_step(f"step 0{suffix}", parts, 0, loss)
    try:
        step = int(content["global_step"])
        _restore(parts, content)
        classes = f"; classes: {data.numbered()}" if data.numbered() else ""
        after = numbers_at_step(f"step {step}{suffix}", parts, step, loss, f"the last checkpoint of {folder}{classes}")
    except (KeyError, RuntimeError, TypeError, ValueError) as error:  # a checkpoint is not trusted and may be damaged
        raise ConfigError(f"run={folder} must have a checkpoint of its own parts ({describe(error)})") from error
    same = np.allclose(before.p, after.p, rtol=1e-6) and np.allclose(before.weight, after.weight, rtol=1e-6)
    return [after] if same else [after, before]


def _restore(parts: RunParts, content: dict[str, Any]) -> None:
    """Load what sampler and weighting have learned, which `TimestepSampling` and the module have saved."""
    sampler, weighting = parts["sampler"], parts["weighting"]
    callbacks = {key: state for key, state in content["callbacks"].items() if key.startswith("TimestepSampling/")}
    sampler.load_state_dict(next(iter(callbacks.values()), {}))
    begin = "weighting."
    states = content["state_dict"].items()
    weighting.load_state_dict({key.removeprefix(begin): state for key, state in states if key.startswith(begin)})
