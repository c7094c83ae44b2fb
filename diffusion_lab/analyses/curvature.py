"""Products of the Hessian of a model's loss with vectors, by differentiating twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from diffusion_lab.training import Objective

Gradient = tuple[Tensor, ...]


class HessianVector:
    """v (P,) -> H v (P,), H the Hessian of the mean of the K losses in the P parameters that need a gradient.

    The products are exact up to rounding: d/dtheta (g(theta)^T v) with the graph of g. Attention is computed by its
    formula, because the fast kernels have no second derivative, and without autocast, whose rounding a second
    derivative would amplify. With a single part its gradient is computed once and its graph is kept.

    Args:
        module: holds the weights; in eval mode.
        objective: its loss.
    """

    def __init__(self, module: nn.Module, objective: Objective) -> None:
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.size = sum(parameter.numel() for parameter in self.parameters)
        self._parts = list(objective.parts)
        self._rows = 0
        self._kept: Gradient | None = None

    def __call__(self, v: Tensor) -> Tensor:
        cut = v.split([parameter.numel() for parameter in self.parameters])
        vectors = [piece.view(p.shape).to(p) for piece, p in zip(cut, self.parameters, strict=True)]
        total, rows = torch.zeros_like(v), 0
        with _twice_differentiable(v.device.type):
            for gradient, n in self._gradients():
                keep = gradient is self._kept
                found = torch.autograd.grad(
                    gradient, self.parameters, vectors, retain_graph=keep, materialize_grads=True
                )
                total += torch.cat([piece.flatten() for piece in found])
                rows += n
        return total / rows

    def _gradients(self) -> Iterator[tuple[Gradient, int]]:
        """Of each part: the gradient of the sum over its rows, with its graph, and the number of rows."""
        if self._kept is not None:
            yield self._kept, self._rows
            return
        for part in self._parts:
            losses = part()
            sums = losses.mean(1).sum()
            gradient = torch.autograd.grad(sums, self.parameters, create_graph=True, materialize_grads=True)
            if len(self._parts) == 1:
                self._kept, self._rows = gradient, len(losses)
            yield gradient, len(losses)


@contextmanager
def _twice_differentiable(device: str) -> Iterator[None]:
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), torch.autocast(device, enabled=False):
        yield
