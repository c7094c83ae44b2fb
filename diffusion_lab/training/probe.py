"""A look at the losses beside training: eval mode, the training's autocast, common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.streams import Streams


class DenoiserProbe:
    """Implements `diffusion_lab.timesteps.Probe` on a denoiser.

    The noise of row i at the j-th timestep is a function of (run seed, `seed`, i, j): the same call before and after
    an update uses the same noise, and the difference of the two is the update's effect alone.

    Args:
        denoiser: what is looked at.
        streams: the run's random numbers.
        precision: gives the training's autocast context.
        max_rows: rows of one network call.
    """

    def __init__(
        self,
        denoiser: Denoiser,
        streams: Streams,
        precision: Callable[[], AbstractContextManager] = nullcontext,
        max_rows: int = 128,
    ) -> None:
        self.denoiser, self.streams, self.precision, self.max_rows = denoiser, streams, precision, max_rows

    @torch.no_grad()
    def loss(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Native loss of every image at every timestep: (B,C,H,W), (K,) -> (B,K) float32."""
        images, times = len(x0), len(t)
        eps = self._noise((images, times, *x0.shape[1:]), x0.device, seed).flatten(0, 1)
        row = torch.arange(images, device=x0.device).repeat_interleave(times)
        steps = t.to(x0.device).repeat(images)
        parts = []
        with self._looking():
            for some in torch.arange(images * times, device=x0.device).split(self.max_rows):
                here = {key: value[row[some]] for key, value in cond.items()}
                parts.append(self.denoiser.loss(x0[row[some]], eps[some], steps[some], **here).native)
        return torch.cat(parts).view(images, times)

    def grad_sq_norm(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Squared norm of each image's gradient at its own timestep: (B,C,H,W), (B,) -> (B,) float64.

        One backward pass per image: it runs every few hundred steps, and needs no more memory than training does.
        """
        parameters = [p for p in self.denoiser.parameters() if p.requires_grad]
        eps = self._noise(tuple(x0.shape), x0.device, seed)
        norms = []
        with self._looking(), torch.enable_grad():
            for i in range(len(x0)):
                one = slice(i, i + 1)
                here = {key: value[one] for key, value in cond.items()}
                native = self.denoiser.loss(x0[one], eps[one], t[one], **here).native.sum()
                gradients = torch.autograd.grad(native, parameters, allow_unused=True)
                norms.append(sum(g.double().square().sum() for g in gradients if g is not None))
        return torch.stack(norms)

    def _noise(self, shape: tuple[int, ...], device: torch.device, seed: int) -> Tensor:
        return self.streams.normal(shape, "timesteps", -1, seed, device=device)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        training = self.denoiser.training
        self.denoiser.eval()
        try:
            with self.precision():
                yield
        finally:
            self.denoiser.train(training)
