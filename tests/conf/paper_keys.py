"""How a composed configuration is read: for each name of a paper's setting a check, which returns `SAME` or what the
configuration has instead.

Classes are compared by their names without case and signs: the file says "logit-normal" for `LogitNormal`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.build_model import network_arguments
from diffusion_lab.cli.config import plain_value
from diffusion_lab.cli.run_parts import RunParts

SAME = object()
Check = Callable[[Any, DictConfig], Any]  # (value of the paper, configuration) -> SAME or what the configuration has


def equal(value: Any, has: Any) -> bool:
    """Equal numbers to 1e-9, lists by element."""
    if isinstance(value, list) and isinstance(has, list):
        return len(value) == len(has) and all(map(equal, value, has))
    if isinstance(value, bool) or isinstance(has, bool) or not isinstance(value, int | float):
        return value == has
    return isinstance(has, int | float) and math.isclose(value, has, rel_tol=1e-9)


def key(path: str) -> Check:
    """The value at a dotted key; a key that is not there has the value null."""

    def check(value: Any, config: DictConfig) -> Any:
        has = plain_value(config, path)
        return SAME if equal(value, has) else has

    return check


def part(path: str) -> Check:
    """The class of the part at a dotted key."""

    def check(value: Any, config: DictConfig) -> Any:
        has = str(OmegaConf.select(config, f"{path}._target_")).rsplit(".", 1)[-1]
        return SAME if re.sub(r"[^a-z0-9]", "", value.lower()) == has.lower() else has

    return check


def schedule(value: dict[str, Any], config: DictConfig) -> Any:
    """The betas at all timesteps, by closed form (Ho et al. 2020, section 4; Nichol & Dhariwal 2021, equation 17)."""
    has = instantiate(config.schedule, _convert_="all").betas.numpy()
    steps = len(has)
    if value.get("alphas_cumprod") == "squared cosine":
        u = (np.arange(steps + 1) / steps + value["offset"]) / (1 + value["offset"])
        f = np.cos(u * np.pi / 2) ** 2
        betas = np.minimum(1 - f[1:] / f[:-1], value["largest_beta"])
    elif value["beta"] == "linear":
        betas = np.linspace(value["first"], value["last"], steps) * 1000 / steps
    else:
        betas = np.linspace(value["first"] ** 0.5, value["last"] ** 0.5, steps) ** 2
    return SAME if np.allclose(has, betas, rtol=1e-6, atol=0) else f"betas from {has[0]:.6g} to {has[-1]:.6g}"


def evaluated_at(value: list[int], config: DictConfig) -> Any:
    """The steps of a table's columns are among those whose weights are kept: every `keep_every` and the last."""
    kept = {config.max_steps}
    if config.keep_every:
        kept.update(range(config.keep_every, config.max_steps + 1, config.keep_every))
    return SAME if set(value) <= kept else sorted(kept)[:12]


def solver_steps(value: int, config: DictConfig) -> Any:
    has = config.solver.steps or config.schedule.num_timesteps
    return SAME if has == value else has


def vlb_weight(value: float, config: DictConfig) -> Any:
    """The weight of a timestep's term of the bound; null is T/1000."""
    has = config.variance.get("vlb_weight") or config.schedule.num_timesteps / 1000
    return SAME if equal(value, has) else has


def ema_decay(value: float, config: DictConfig) -> Any:
    """The first decay, which evaluations use; another rule of averaging would have none."""
    if config.callbacks.ema.rule is not None:
        return f"another rule, {config.callbacks.ema.rule}"
    has = config.callbacks.ema.decays[0]
    return SAME if equal(value, has) else has


def metric(value: str, config: DictConfig) -> Any:
    return SAME if value in config.metrics.names else list(config.metrics.names)


def images(value: str, config: DictConfig) -> Any:
    """The images that are trained on, or that the latents were made of."""
    encoded = ".images" if config.dataset.source.get("images") is not None else ""
    return part(f"dataset.source{encoded}")(value, config)


def initial_weights(value: str | None, config: DictConfig) -> Any:
    """Null, or which weights of another run: raw or ema."""
    has = config.init_from and str(config.init_from).rsplit(":", 1)[-1]
    return SAME if has == value else has


def shape(value: list[int], config: DictConfig) -> Any:
    has = list(RunParts(config)["dataset"].shape)
    return SAME if value == has else has


def parameters(value: int, config: DictConfig) -> Any:
    """The number of the network's parameters, with the data's channels and classes and the prediction's outputs."""
    named = ("model", "dataset", "network", "prediction", "variance", "schedule")
    has = _counted(json.dumps({name: plain_value(config, name) for name in named}))
    return SAME if value == has else has


@cache
def _counted(text: str) -> int:
    parts = RunParts(DictConfig(json.loads(text)))
    given = network_arguments(parts)
    with torch.device("meta"):
        network = parts["network"](**given)
    return sum(p.numel() for p in network.parameters())


CHECKS: dict[str, Check] = {
    "images": images,
    "shape": shape,
    "pixels": key("dataset.source.images.image_size"),
    "mirrored": key("dataset.flip"),
    "class_conditional": key("dataset.conditional"),
    "label_dropout": key("dataset.label_dropout"),
    "T": key("schedule.num_timesteps"),
    "schedule": schedule,
    "prediction": part("prediction"),
    "mixed_space": part("prediction.space"),
    "mixed_granularity": part("prediction.granularity"),
    "mixed_reduction": part("prediction.reduction"),
    "mixed_generation": part("prediction.generation_head"),
    "mixed_ridge": key("prediction.generation_head.ridge"),
    "mixed_bins": key("prediction.tracker.bins"),
    "mixed_decay": key("prediction.tracker.decay"),
    "variance": part("variance"),
    "vlb_weight": vlb_weight,
    "preconditioning": part("preconditioning"),
    "preconditioning_multiplier": key("preconditioning.multiplier"),
    "parameters": parameters,
    "base_channels": key("network.base_channels"),
    "channel_multipliers": key("network.channel_multipliers"),
    "res_blocks": key("network.num_res_blocks"),
    "attention_at": key("network.attention_resolutions"),
    "heads": key("network.num_heads"),
    "head_channels": key("network.head_channels"),
    "attention_layout": key("network.attention_layout"),
    "scale_shift_norm": key("network.scale_shift_norm"),
    "resblock_updown": key("network.resblock_updown"),
    "time_scale": key("network.time_scale"),
    "dropout": key("network.dropout"),
    "patch": key("network.patch_size"),
    "width": key("network.dim"),
    "depth": key("network.depth"),
    "final_convolution": key("network.conv"),
    "latent": key("network.latent_dim"),
    "smallest": key("network.smallest"),
    "optimizer": part("optimizer"),
    "lr": key("optimizer.lr"),
    "betas": key("optimizer.betas"),
    "adam_eps": key("optimizer.eps"),
    "weight_decay": key("optimizer.weight_decay"),
    "annealing": part("annealing"),
    "warmup_steps": key("annealing.warmup_steps"),
    "annealing_then": key("annealing.then"),
    "mdlrc_steps": key("annealing.total_steps"),
    "mdlrc_beta1": key("annealing.beta1"),
    "mdlrc_floor": key("annealing.floor"),
    "mdlrc_decay": key("annealing.decay"),
    "mdlrc_compensation": key("annealing.compensate"),
    "mdlrc_rate_from": key("annealing.lr_from"),
    "gradient_clip": key("gradient_clip"),
    "ema_decay": ema_decay,
    "ema_warmup": key("callbacks.ema.warmup"),
    "batch": key("batch_size"),
    "steps": key("max_steps"),
    "evaluated_at": evaluated_at,
    "precision": key("precision"),
    "initial_weights": initial_weights,
    "discriminator_lr": key("model.discriminator_lr"),
    "discriminator_steps": key("model.discriminator_steps"),
    "weight": part("weighting"),
    "weight_gamma": key("weighting.gamma"),
    "weight_k": key("weighting.k"),
    "weight_start": key("weighting.start"),
    "weight_end": key("weighting.end"),
    "weight_warmup": key("weighting.warmup_steps"),
    "weight_normalized": key("weighting.normalize"),
    "timesteps": part("sampler"),
    "importance_weight": key("sampler.reweight"),
    "timesteps_mean": key("sampler.mean"),
    "timesteps_std": key("sampler.std"),
    "timesteps_power": key("sampler.power"),
    "speed_suppression": key("sampler.suppression"),
    "speed_threshold": key("sampler.threshold"),
    "speed_dual": key("sampler.dual"),
    "clts_mean": key("sampler.mean"),
    "clts_std": key("sampler.std"),
    "clts_target": key("sampler.target_steps"),
    "clts_outside": key("sampler.outside"),
    "clts_mean_end": key("sampler.mean_end"),
    "policy_every": key("sampler.every"),
    "policy_selected": key("sampler.num_selected"),
    "policy_queue": key("sampler.queue"),
    "policy_select_from": key("sampler.select_from"),
    "policy_grid": key("sampler.grid_stride"),
    "policy_reward_every": key("sampler.reward_every"),
    "policy_common_noise": key("sampler.common_noise"),
    "policy_eval_mode": key("sampler.eval_mode"),
    "policy_entropy": key("sampler.entropy"),
    "policy_entropy_form": key("sampler.entropy_mode"),
    "policy_rewards": key("sampler.rewards"),
    "policy_lr": key("sampler.lr"),
    "policy_clip": key("sampler.clip"),
    "policy_width": key("sampler.hidden"),
    "policy_layers": key("sampler.hidden_layers"),
    "variance_every": key("sampler.every"),
    "variance_first": key("sampler.first"),
    "variance_points": key("sampler.points"),
    "variance_images": key("sampler.images"),
    "variance_form": key("sampler.form"),
    "variance_momentum": key("sampler.momentum"),
    "variance_uniform": key("sampler.uniform"),
    "solver": part("solver"),
    "solver_steps": solver_steps,
    "solver_eta": key("solver.eta"),
    "solver_clip": key("solver.clip"),
    "heun_churn": key("solver.s_churn"),
    "heun_rho": key("solver.rho"),
    "heun_sigma_min": key("solver.sigma_min"),
    "heun_sigma_max": key("solver.sigma_max"),
    "metric": metric,
    "samples": key("metrics.num_samples"),
    "reference_split": key("metrics.split"),
    "features": part("dataset.features"),
}
