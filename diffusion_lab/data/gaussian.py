"""Data whose best possible loss is known: mixtures of isotropic Gaussians.

    x0 ~ sum_k w_k N(mu_k, v_k I),   x_t = a x0 + s eps,   a = sqrt(alpha_bar_t),  s = sqrt(1 - alpha_bar_t),
    D = C H W

Given component k, x_t ~ N(a mu_k, u_k I) with u_k = a^2 v_k + s^2, and

    E[eps | x_t, k] = s (x_t - a mu_k) / u_k                                              (1)
    Var[eps | x_t, k] = a^2 v_k / u_k   per dimension                                     (2)
    r_k(x_t) = P(k | x_t)  proportional to  w_k u_k^(-D/2) exp(-|x_t - a mu_k|^2 / 2 u_k) (3)
    E[eps | x_t] = sum_k r_k E[eps | x_t, k]                                              (4)

No network has a smaller expected epsilon loss than (4), whose loss is, by the law of total variance,

    floor_t = sum_k w_k a^2 v_k / u_k  +  E_{x_t} sum_k r_k |E[eps | x_t, k] - E[eps | x_t]|^2 / D      (5)

One Gaussian has no second term. (1) to (4) are Gaussian conditioning; see e.g. C. M. Bishop, "Pattern Recognition
and Machine Learning", section 2.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from diffusion_lab.data.source import ArrayImages, ImageSource
from diffusion_lab.streams import Streams


class HasAlphasCumprod(Protocol):
    """A noise schedule: alpha_bar (T,) float64."""

    alphas_cumprod: Tensor


class GaussianMixture(ImageSource):
    """Float images (C,H,H) drawn from a mixture, with the loss that no model can beat.

    Training and test images are independent draws. They are a finite sample: only the loss on test images is bounded
    by `loss_floor`, because a network may learn the training images by heart. Labels are the components.

    Args:
        means: K entries, each one number for all pixels, or a nested list of shape (C,H,H).
        variances: K variances v_k > 0 of every pixel.
        weights: K weights w_k > 0, brought to the sum 1; None: all equal.
        channels: C.
        image_size: H, pixels.
        num_images: training images drawn.
        num_test_images: test images drawn.
        seed: of the data, not of the run: all runs see the same images.

    Raises:
        ValueError: a size below 1, a variance or weight that is not positive, lists of unequal length, a mean of
            another shape.
    """

    name = "gaussian"
    value_range = None

    def __init__(
        self,
        means: Sequence[float | list],
        variances: Sequence[float],
        weights: Sequence[float] | None = None,
        channels: int = 1,
        image_size: int = 8,
        num_images: int = 65536,
        num_test_images: int = 4096,
        seed: int = 0,
    ) -> None:
        super().__init__()
        sizes = {
            "channels": channels,
            "image_size": image_size,
            "num_images": num_images,
            "num_test_images": num_test_images,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name}={size} must be at least 1")
        if not means:
            raise ValueError("means=[] must name at least one component; use [0.0] for one Gaussian")
        self.channels, self.image_size = channels, image_size
        self.means = torch.stack([_mean(mean, (channels, image_size, image_size)) for mean in means])
        weights = [1.0] * len(means) if weights is None else weights
        self.variances = _positive("variances", variances, len(means))
        self.weights = _positive("weights", weights, len(means))
        self.weights = self.weights / self.weights.sum()
        self.num_classes = len(means) if len(means) > 1 else None
        self.num_images, self.num_test_images = num_images, num_test_images
        self.streams = Streams(seed)

    def train_size(self) -> int:
        return self.num_images

    def load(self, split: str) -> ArrayImages:
        x0, component = self.sample(*((self.num_images, 0) if split == "train" else (self.num_test_images, 1)))
        return ArrayImages(x0, component if self.num_classes else None)

    def sample(self, n: int, position: int) -> tuple[Tensor, Tensor]:
        """x0 (n,C,H,H) float32 and the component (n,) int64 of each; a function of (seed, n, position)."""
        u = self.streams.uniform(n, "data", position, 0)
        component = torch.searchsorted(self.weights.cumsum(0), u, right=True).clamp_(max=len(self.weights) - 1)
        noise = self.streams.normal((n, *self.means.shape[1:]), "data", position, 1)
        deviation = self.variances.sqrt()[component].view(-1, 1, 1, 1).float()
        return noise.mul_(deviation).add_(self.means.float()[component]), component

    def optimal_eps(self, x_t: Tensor, t: Tensor, schedule: HasAlphasCumprod) -> Tensor:
        """E[eps | x_t] of equation (4): (B,C,H,H), (B,) int64 -> (B,C,H,H), computed in float64."""
        alpha_bar = schedule.alphas_cumprod.to(x_t.device, torch.float64)[t]
        responsibility, by_component = self._posterior(x_t.double().flatten(1), alpha_bar)
        return torch.einsum("bk,bkd->bd", responsibility, by_component).view(x_t.shape).to(x_t.dtype)

    def loss_floor(self, schedule: HasAlphasCumprod, samples: int = 1024) -> Tensor:
        """(T,) float64: the smallest expected epsilon loss (mean over C,H,W) at each timestep, equation (5).

        Exact for one Gaussian. For a mixture the second term is a mean over `samples` draws of x_t per timestep, from
        numbers that are the same at every t; its standard error is at most 0.5 / sqrt(samples) of that term's range.
        """
        alpha_bar = schedule.alphas_cumprod.to("cpu", torch.float64)[:, None]
        u = alpha_bar * self.variances + 1 - alpha_bar
        floor = (self.weights * alpha_bar * self.variances / u).sum(1)
        if len(self.weights) == 1:
            return floor
        x0 = self.sample(samples, 2)[0].double().flatten(1)
        eps = self.streams.normal(tuple(x0.shape), "data", 3).double()
        for t, one in enumerate(alpha_bar.flatten()):
            x_t = one.sqrt() * x0 + (1 - one).sqrt() * eps
            responsibility, by_component = self._posterior(x_t, one.expand(samples))
            mean = torch.einsum("bk,bkd->bd", responsibility, by_component)
            spread = (by_component - mean[:, None]).square().mean(2)
            floor[t] += (responsibility * spread).sum(1).mean()
        return floor

    def _posterior(self, x_t: Tensor, alpha_bar: Tensor) -> tuple[Tensor, Tensor]:
        """r (B,K) of equation (3) and E[eps | x_t, k] (B,K,D) of (1), from x_t (B,D) and alpha_bar (B,), float64."""
        means, variances, weights = (
            value.to(x_t.device) for value in (self.means.flatten(1), self.variances, self.weights)
        )
        alpha_bar = alpha_bar[:, None]
        u = alpha_bar * variances + 1 - alpha_bar
        centred = x_t[:, None] - alpha_bar.sqrt()[..., None] * means
        log_weight = weights.log() - 0.5 * (x_t.shape[1] * u.log() + centred.square().sum(2) / u)
        return log_weight.softmax(1), centred * ((1 - alpha_bar).sqrt() / u)[..., None]


def _mean(mean: float | list, shape: tuple[int, int, int]) -> Tensor:
    """(C,H,H) float64."""
    value = torch.as_tensor(mean, dtype=torch.float64)
    if value.ndim and tuple(value.shape) != shape:
        raise ValueError(f"means={tuple(value.shape)} must be one number or have the shape {shape}")
    return value.expand(shape)


def _positive(name: str, values: Sequence[float], components: int) -> Tensor:
    """(K,) float64."""
    tensor = torch.as_tensor(values, dtype=torch.float64)
    if tuple(tensor.shape) != (components,) or not (tensor > 0).all() or not torch.isfinite(tensor).all():
        raise ValueError(f"{name}={list(values)} must be {components} positive numbers, one for each of `means`")
    return tensor
