"""The network of a trained run as an encoder of images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.auxiliary.base import places
from diffusion_lab.networks.checks import layer_fault
from diffusion_lab.runs.trained_run import TrainedRun


class RunNetwork:
    """What a layer of a trained run's network returns for clean images:

        y = layer(network(alpha_t x0, t)),   x0 (b,C,H,W) without noise -> y (b,D,h,w)

    at one timestep, with the run's averaged weights in eval mode. A network that takes labels is given the one that
    stands for none. Unlike extractors of features it also takes latents, of a run on the same latents.

    Use: as the encoder of `REPA`, to draw a new network to one that has been trained.

    Args:
        run: the trained run, of a diffusion model; its checksum is in the record of the run that uses it.
        layer: name of a module inside its network, such as `middle.0` of a U-Net or `blocks.3` of a DiT.
        t: timestep that the network is told, 0 <= t < T of the trained run; 0 is the cleanest.

    Raises:
        ValueError: t is negative; from `check`, a layer that does not exist or is never called, or a run that cannot be
            asked.
    """

    def __init__(self, run: TrainedRun, layer: str, t: int = 0) -> None:
        self.run, self.layer = run, layer
        self.t = check_integer("t", t, 0, "use 0, the cleanest timestep")

    @property
    def name(self) -> str:
        return self.run.run

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(C,H,W) of the images that it takes."""
        return self.run.opened().data.shape

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether the run was trained on images of the shape (C,H,W)."""
        return shape == self.input_shape

    def check(self) -> None:
        """Raise ValueError if the run, which is loaded, cannot be asked for this layer."""
        trained = self.run.opened()
        model = getattr(trained, "denoiser", None)
        if model is None:
            raise ValueError(f"run.run={self.name} must be a diffusion model, and is one of the {trained.kind}")
        if self.t >= model.num_timesteps:
            raise ValueError(f"t={self.t} must be a timestep of {self.name}, below {model.num_timesteps}; use 0")
        if fault := layer_fault(model.network, self.layer, "layer"):
            raise ValueError(fault)
        given = trained.data.conditions.names
        if given - {"label"} or (given and model.null_label is None):
            raise ValueError(
                f"run.run={self.name} must answer without conditions, and takes {', '.join(sorted(given))}; use a run "
                "with dataset.conditional=false, or with dataset.label_dropout=0.1"
            )
        self.by_place(torch.zeros(1, *self.input_shape, device=next(model.parameters()).device))

    def prepare(self, device: torch.device | str) -> None:
        """Move the network to the device."""
        self.run.opened().denoiser.to(device).requires_grad_(False)

    @torch.no_grad()
    def by_place(self, x0: Tensor) -> Tensor:
        """(b,C,H,W) in [-1, 1], or latents -> (b,D,h,w) float32."""
        model, kept = self.run.opened().denoiser, list[Any]()
        t = torch.full((len(x0),), self.t, device=x0.device)
        label = {} if model.null_label is None else {"label": torch.full_like(t, model.null_label)}
        layer = model.network.get_submodule(self.layer)
        handle = layer.register_forward_hook(lambda module, inputs, result: kept.append(result))
        try:
            with torch.autocast(x0.device.type, enabled=False):
                model.answer(model.schedule.perturb(x0, torch.zeros_like(x0), t), t, **label)
        finally:
            handle.remove()
        if not kept or not isinstance(kept[-1], Tensor):
            raise ValueError(
                f"layer={self.layer} must be a module that the network of {self.name} calls and that returns a tensor; "
                "use e.g. one of its blocks"
            )
        return places(kept[-1].float())
