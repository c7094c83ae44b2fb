"""Sampling: diffusers' pipelines over ours, with the same network and the same number of calls.

Time of diffusers' DDIMPipeline and DDPMPipeline over that of `generate`, with the network prepared as by `diffusion-lab
sample`, for 8 images of 3 x 32 x 32 with 2 steps: from the latents to pixels, so the ratio is that of the time per
network call and image. Both networks are DDPM's for CIFAR-10 (network=unet_ddpm and diffusers' UNet2DModel) with
35,746,307 random parameters each, in eval mode. bf16 is `precision=bf16-mixed` against the same float32 pipeline, which
has no such setting. The last line is the time outside the network: our DDIM loop around a network without computation,
in per cent of the loop around the real one. CPU time of one thread, interleaved, 3 rounds after one warm-up round.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator

import torch
from diffusers import DDIMPipeline, DDIMScheduler, DDPMPipeline, DDPMScheduler
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.paired import Ratio, interleaved, ratio
from benchmarks.table import Line, at_least, at_most, bfloat16_line
from diffusion_lab.cli.inference import ready
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, linear
from diffusion_lab.metrics import generate
from diffusion_lab.networks import UNet
from diffusion_lab.solvers import DDIM, DDPM, Solver

IMAGES, STEPS, ROUNDS = 8, 2, 3


def lines() -> Iterator[Line]:
    denoiser, theirs = _denoiser(UNet(3, 3, 32)), peers.unet_ddpm().eval()
    parameters = [sum(p.numel() for p in network.parameters()) for network in (denoiser, theirs)]
    assert parameters[0] == parameters[1], parameters
    nothing = _denoiser(Nothing())
    tasks = {
        "ddim": _ours(denoiser, DDIM(steps=STEPS)),
        "their ddim": _theirs(DDIMPipeline(theirs, DDIMScheduler(1000))),
        "bf16": _ours(copy.deepcopy(denoiser), DDIM(steps=STEPS), "bf16-mixed"),
        "ddpm": _ours(denoiser, DDPM(steps=STEPS)),
        "their ddpm": _theirs(DDPMPipeline(theirs, DDPMScheduler(1000))),
        "nothing": _ours(nothing, DDIM(steps=STEPS)),
    }
    seconds = interleaved(tasks, ROUNDS)
    yield Line("DDIM, fp32", ratio(seconds["their ddim"], seconds["ddim"]), at_least(1.07))
    yield Line("DDPM, fp32", ratio(seconds["their ddpm"], seconds["ddpm"]), at_least(1.07))
    yield bfloat16_line("DDIM, bf16", ratio(seconds["their ddim"], seconds["bf16"]), at_least(2.1))
    share = [100 * ours / whole for ours, whole in zip(seconds["nothing"], seconds["ddim"], strict=True)]
    yield Line("all but the network", Ratio.of(share), at_most(1), "%")


class Nothing(nn.Module):
    """A network that gives back what it is given."""

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return x


def _denoiser(network: nn.Module) -> Denoiser:
    return Denoiser(network, linear(1000), Epsilon(), FixedLarge())


def _ours(denoiser: Denoiser, solver: Solver, precision: str = "32-true") -> Callable[[], None]:
    def run() -> None:
        with ready(denoiser, "cpu", precision) as device:
            images = generate(denoiser, solver, range(IMAGES), 0, (3, 32, 32), IMAGES, device)
        assert images.dtype == torch.uint8

    return run


def _theirs(pipeline: DDIMPipeline | DDPMPipeline) -> Callable[[], None]:
    pipeline.set_progress_bar_config(disable=True)

    def run() -> None:
        images = pipeline(batch_size=IMAGES, num_inference_steps=STEPS, output_type="np").images
        assert images.size == math.prod((IMAGES, 3, 32, 32))

    return run
