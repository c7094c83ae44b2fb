"""Sampling with every solver of conf/solver, and what measures a model: the probe, the bound, the evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from diffusion_lab.cli.build_model import build_module
from diffusion_lab.cli.run_parts import RunParts, part
from diffusion_lab.diffusion.likelihood import bits_per_dim, vlb_terms
from diffusion_lab.metrics.sampling import generate
from diffusion_lab.solvers import Autoguided
from diffusion_lab.streams import Streams
from diffusion_lab.training import DenoiserProbe
from tests.cuda.machine import paper_machine
from tests.cuda.paper import CUDA, numbers
from tests.cuda.training import configured, options
from tests.cuda.waits import SAMPLING, not_allowed

LABELLED = ["dataset.conditional=true", "dataset.label_dropout=0.5"]


def built(folder: Path, choice: str | None = None, *overrides: str) -> tuple[Any, Any, Any]:
    """Configuration, data and denoiser on the device; to be called inside `paper_machine`."""
    cfg = configured(folder, choice, *overrides)
    parts = RunParts(cfg)
    data = parts["dataset"]
    return cfg, data, build_module(parts).denoiser.eval().to(CUDA)


VARIANTS = {  # of options that have more to read, or by themselves visit every timestep
    "ddpm": ("solver.steps=7",),
    "dpm_solver_pp": ("solver.sde=true", "solver.spacing.shift=3"),
    "unipc": ("solver/spacing=karras",),
    "heun": ("solver.s_churn=5",),
}


@pytest.mark.parametrize("name", [*options()["solver"], *(f"{name} with more" for name in VARIANTS)])
def test_a_solver_samples_on_the_device_and_waits_for_its_images_alone(name: str, tmp_path: Path) -> None:
    name, _, more = name.partition(" ")
    with paper_machine() as gpu:
        choices = (None, f"solver={name}", *VARIANTS[name]) if more else (f"solver={name}",)
        if name == "autoguided":  # whose yaml names a trained run
            choices = ("solver=ddim",)
        if name == "meanflow":  # for models of intervals
            choices = ("method=meanflow",)
        cfg, data, denoiser = built(tmp_path, *choices, *LABELLED, "schedule.num_timesteps=60")
        solver = part(cfg, "solver")
        if name == "autoguided":
            solver = Autoguided(solver, denoiser)
        gpu.waits.clear()
        images = generate(denoiser, solver, range(3), 0, data.shape, 2, CUDA, conditions=data.conditions.of_samples)
    assert images.device.type == "cpu" and images.shape == (3, *data.shape)
    assert not_allowed(gpu.waits, SAMPLING) == {}
    # Two batches: what is read is read once for each, never once for a step of the solver.
    assert max(gpu.waits.values()) <= 4 * {"guided": 2, "autoguided": 3}.get(name, 1)


def test_a_sample_has_the_pixels_of_the_cpu(tmp_path: Path) -> None:
    def sampled(device: str) -> torch.Tensor:
        cfg = configured(tmp_path, None, "schedule.num_timesteps=60")
        parts = RunParts(cfg)
        data = parts["dataset"]
        denoiser = build_module(parts).denoiser.eval().to(device)
        return generate(denoiser, part(cfg, "solver"), range(3), 0, data.shape, 2)  # where the weights are

    with paper_machine():
        on_paper = sampled("cuda:0")
    assert torch.equal(on_paper, sampled("cpu"))


def test_the_probe_never_waits(tmp_path: Path) -> None:
    with paper_machine() as gpu:
        _, data, denoiser = built(tmp_path)
        probe = DenoiserProbe(denoiser, Streams(0))
        x0, t = torch.randn(4, *data.shape, device=CUDA), torch.arange(4, device=CUDA)
        gpu.waits.clear()
        found = [
            probe.loss(x0, t[:2], 0),
            probe.pairs(x0, t, t, 4, 0),
            probe.grad_sq_norm(x0, t, 0),
            *probe.grad_moments(x0, t[:2], 0),
        ]
        assert not gpu.waits
    assert [one.shape for one in found] == [(4, 2), (4,), (4,), (2,), (2,)]
    assert all(one.device == CUDA and bool(numbers(one).isfinite().all()) for one in found)


def test_the_bound_is_computed_on_the_device(tmp_path: Path) -> None:
    with paper_machine() as gpu:
        _, data, denoiser = built(tmp_path, "variance=learned_range", "schedule.num_timesteps=22")
        gpu.waits.clear()
        x0 = torch.rand(2, *data.shape, device=CUDA) * 2 - 1
        t = torch.arange(2, device=CUDA)
        terms = vlb_terms(denoiser, x0, torch.randn_like(x0), t)
        bound = bits_per_dim(denoiser, x0, lambda k, like: torch.randn_like(like))
        assert {one.device for one in (terms, *bound)} == {CUDA} and not gpu.waits
    assert bool(numbers(bound.total).isfinite().all())
