"""The numbers of `diffusion-lab show`: of one composed configuration before training, and of its parts at any step."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.config import choices_of, conf_dir
from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import described
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.targets import Trust
from diffusion_lab.reports.shown import Shown

SHAPE = (1, 8, 8)  # of the images for which a sampler with a network of its own makes it; p before training needs none
PARTS = ("schedule", "prediction", "weighting", "sampler")


def shown(name: str, cfg: DictConfig, step: int, loss: str, config_dirs: list[str]) -> Shown:
    """Build schedule, prediction, weighting and sampler and evaluate them at one optimizer step, untrained.

    Raises:
        ConfigError: a part rejects its arguments, or the model is not a diffusion model.
    """
    check_diffusion(name, cfg)
    parts = RunParts(cfg, Trust.typed(config_dirs))
    made_ready(parts, SHAPE)
    found = evaluated(name, parts, step, loss)
    # A sampler that learns has state to save, as rule 4 of its contract demands; a wrapper has that of its base.
    if not parts["sampler"].state_dict():
        return found
    flat = bool(abs(found.p - 1 / len(found.p)).max() < 1e-9)
    note = "p is the one before training: " + ("uniform until" if flat else "it changes once")
    note = f"{note} the sampler has learned from the losses{_how(cfg, config_dirs)}"
    return Shown(found.name, found.log_snr, found.p, found.weight, note)


def _how(cfg: DictConfig, config_dirs: list[str]) -> str:
    """What a sampler learns, in the words of its yaml file or docstring."""
    option, folders = choices_of(cfg).get("sampler"), [conf_dir(), *map(Path, config_dirs)]
    if option is None or option not in files.options("sampler", folders):
        return ""
    purpose = described("sampler", str(option), folders).purpose
    return f". What it learns: {purpose}" if purpose else ""


def check_diffusion(name: str, cfg: DictConfig) -> None:
    """Check that a configuration has the parts that `show` evaluates.

    Raises:
        ConfigError: names what it lacks.
    """
    lacks = [part for part in PARTS if cfg.get(part) is None]
    if lacks:
        raise ConfigError(f"{name} must be a diffusion model, and it has no {lacks[0]}; leave it out")


def made_ready(parts: RunParts, shape: tuple[int, ...]) -> None:
    """Build the sampler, including the networks that it makes for images of a shape, as at the start of a run."""
    import torch

    with config_errors("sampler"):
        sampler = parts["sampler"]
        torch.manual_seed(0)
        sampler.setup(shape)


def evaluated(name: str, parts: RunParts, step: int, loss: str, note: str = "") -> Shown:
    """p and w of parts at an optimizer step, in the state in which they are."""
    import torch

    from diffusion_lab.diffusion.objective import native_scales

    schedule, sampler, weighting = parts["schedule"], parts["sampler"], parts["weighting"]
    snr, scale = schedule.snr, native_scales(schedule, parts["prediction"])
    with torch.no_grad(), config_errors("sampler"):
        p = sampler.probabilities(step).double()
        drawn = sampler.weight(torch.arange(len(snr)), step).double()
        weighting.refresh(snr, scale, p * drawn, step)
        native = weighting.native_weight(snr, scale, step).double() * weighting.factor
    per_native = {"native": 1.0, "x0": scale, "eps": scale / snr}[loss]
    return Shown(name, schedule.log_snr.numpy(), p.numpy(), (drawn * native * per_native).numpy(), note)
