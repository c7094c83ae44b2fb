"""The numbers of `diffusion-lab show` from one composed configuration."""

from __future__ import annotations

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.targets import Trust
from diffusion_lab.reports.shown import Shown

SHAPE = (1, 8, 8)  # of the images for which a sampler with a network of its own makes it; p before training needs none


def shown(name: str, cfg: DictConfig, step: int, loss: str, config_dirs: list[str]) -> Shown:
    """Build schedule, prediction, weighting and sampler and evaluate them at one optimizer step, untrained.

    Raises:
        ConfigError: a part rejects its arguments, or the model is not a diffusion model.
    """
    import torch

    from diffusion_lab.timesteps import TimestepSampler

    if cfg.get("sampler") is None or cfg.get("schedule") is None:
        raise ConfigError(f"{name} must be a diffusion model with a sampler of timesteps; leave it out")
    parts = RunParts(cfg, Trust.typed(config_dirs))
    schedule, prediction = parts["schedule"], parts["prediction"]
    sampler, weighting = parts["sampler"], parts["weighting"]
    snr = schedule.snr
    with torch.no_grad(), config_errors("sampler"):
        torch.manual_seed(0)
        sampler.setup(SHAPE)
        p = sampler.probabilities(step).double()
        drawn = sampler.weight(torch.arange(len(snr)), step).double()
        scale = prediction.native_scale(snr)
        native = weighting.native_weight(snr, scale, step).double()
    per_native = {"native": 1.0, "x0": scale, "eps": scale / snr}[loss]
    learns = type(sampler).observe is not TimestepSampler.observe
    note = _note(bool(torch.allclose(p, torch.full_like(p, 1 / len(p)))), step) if learns else ""
    return Shown(name, schedule.log_snr.numpy(), p.numpy(), (drawn * native * per_native).numpy(), note)


def _note(uniform: bool, step: int) -> str:
    """For a sampler that learns from the losses, which only training has."""
    if uniform:
        return "learns from the losses of training; uniform until it has learned"
    return f"may change with the losses of training; this is step {step} without any"
