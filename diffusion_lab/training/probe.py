"""Evaluation of losses and gradients beside training: eval mode, training's autocast, common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from diffusion_lab.distributed import rank, sum_, world_size
from diffusion_lab.eval_mode import eval_mode
from diffusion_lab.streams import Streams


class WithLoss(Protocol):
    """What is evaluated: a `Denoiser`, or a network of another loop with the function of its losses."""

    def modules(self) -> Iterator[nn.Module]: ...
    def eval(self) -> Any: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...
    def loss(self, x0: Tensor, eps: Tensor, t: Tensor, **cond: Tensor) -> Any:
        """An object whose `native` (b,) is the loss of each row."""
        ...


class DenoiserProbe:
    """Implements `diffusion_lab.timesteps.Probe` on a denoiser.

    The noise of row i at the j-th timestep is a function of (run seed, `seed`, i, j): the same call before and after
    an update uses the same noise, so the difference of the two is due to the update alone.

    Args:
        denoiser: the model to evaluate.
        streams: the run's random numbers.
        precision: returns the training's autocast context.
        max_rows: maximum number of rows of one network call, >= 1.
    """

    def __init__(
        self,
        denoiser: WithLoss,
        streams: Streams,
        precision: Callable[[], AbstractContextManager] = nullcontext,
        max_rows: int = 256,
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
        with self._as_in_evaluation():
            for some in self._calls(images * times, x0.device):
                here = {key: value[row[some]] for key, value in cond.items()}
                parts.append(self.denoiser.loss(x0[row[some]], eps[some], steps[some], **here).native)
        return torch.cat(parts).view(images, times)

    @torch.no_grad()
    def pairs(
        self, x0: Tensor, t: Tensor, index: Tensor, total: int, seed: int, keep_mode: bool = False, **cond: Tensor
    ) -> Tensor:
        """Native loss of each image at its own timestep: (N,C,H,W), (N,), (N,) -> (N,) float32.

        Args:
            x0: images.
            t: timesteps.
            index: number of each pair among `total`, which selects its noise.
            total: number of pairs with different noise.
            seed: seed of the noise.
            keep_mode: do not switch to eval mode, so that dropout is as in training.
            **cond: conditions, a row per pair.
        """
        eps = self._noise((total, *x0.shape[1:]), x0.device, seed)[index]
        with nullcontext() if keep_mode else eval_mode(self.denoiser), self.precision():
            return torch.cat([self._native(some, x0, eps, t, cond) for some in self._calls(len(x0), x0.device)])

    def grad_sq_norm(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Squared norm of each image's gradient at its own timestep: (B,C,H,W), (B,) -> (B,) float64.

        Uses one backward pass per image: it runs every few hundred steps and needs no more memory than training.
        """
        parameters = [p for p in self.denoiser.parameters() if p.requires_grad]
        eps = self._noise(tuple(x0.shape), x0.device, seed)
        norms = []
        with self._as_in_evaluation(), torch.enable_grad():
            for i in range(len(x0)):
                gradients = self._gradients(i, x0, eps, t, cond, parameters)
                norms.append(sum(g.double().square().sum() for g in gradients if g is not None))
        return torch.stack(norms)

    def grad_moments(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> tuple[Tensor, Tensor]:
        """Over single images' gradients at each timestep: their variance (trace), and the mean squared norm.

            (1/(B-1)) (sum_i |g_i|^2 - B |mean g|^2),   (1/B) sum_i |g_i|^2

        (B,C,H,W), (K,) -> (K,), (K,) float64. Each timestep is computed by one process, so the values do not depend on
        the number of processes.
        """
        images, times = len(x0), len(t)
        parameters = [p for p in self.denoiser.parameters() if p.requires_grad]
        eps = self._noise((times, *x0.shape), x0.device, seed)
        moments = torch.zeros(2, times, dtype=torch.float64, device=x0.device)
        with self._as_in_evaluation(), torch.enable_grad():
            for k in range(rank(), times, world_size()):
                total, squares = [torch.zeros_like(p) for p in parameters], moments.new_zeros(())
                for i in range(images):
                    gradients = self._gradients(i, x0, eps[k], t[k].expand(images), cond, parameters)
                    for place, g in zip(total, gradients, strict=True):
                        if g is not None:
                            place += g
                            squares = squares + g.double().square().sum()
                mean_sq = sum(g.double().square().sum() for g in total) / images**2
                moments[0, k] = (squares - images * mean_sq) / (images - 1)
                moments[1, k] = squares / images
        variance, second = sum_(moments)
        return variance.clamp(min=0), second

    def _native(self, some: Tensor | slice, x0: Tensor, eps: Tensor, t: Tensor, cond: dict[str, Tensor]) -> Tensor:
        """Native loss of some of the rows."""
        here = {key: value[some] for key, value in cond.items()}
        return self.denoiser.loss(x0[some], eps[some], t[some], **here).native

    def _gradients(
        self, i: int, x0: Tensor, eps: Tensor, t: Tensor, cond: dict[str, Tensor], parameters: list[nn.Parameter]
    ) -> tuple[Tensor | None, ...]:
        """Those of the loss of row i; None where a parameter has none."""
        native = self._native(slice(i, i + 1), x0, eps, t, cond).sum()
        return torch.autograd.grad(native, parameters, allow_unused=True)

    def _calls(self, rows: int, device: torch.device) -> Sequence[Tensor]:
        """0..rows-1, split into as few network calls as `max_rows` allows, all of about the same size: on a CPU small
        calls take longer per row."""
        return torch.arange(rows, device=device).tensor_split(max(1, -(-rows // self.max_rows)))

    def _noise(self, shape: tuple[int, ...], device: torch.device, seed: int) -> Tensor:
        return self.streams.normal(shape, "timesteps", -1, seed, device=device)

    @contextmanager
    def _as_in_evaluation(self) -> Iterator[None]:
        with eval_mode(self.denoiser), self.precision():
            yield
