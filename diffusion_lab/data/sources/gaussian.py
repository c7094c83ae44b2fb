"""Data with a known minimum loss: mixtures of isotropic Gaussians.

    x0 ~ sum_k w_k N(mu_k, v_k I),   x_t = a x0 + s eps,   a = sqrt(alpha_bar_t),  s = sqrt(1 - alpha_bar_t),
    D = C H W

Given component k, x_t ~ N(a mu_k, u_k I) with u_k = a^2 v_k + s^2, and

    E[eps | x_t, k] = s (x_t - a mu_k) / u_k                                              (1)
    Var[eps | x_t, k] = a^2 v_k / u_k   per dimension                                     (2)
    r_k(x_t) = P(k | x_t)  proportional to  w_k u_k^(-D/2) exp(-|x_t - a mu_k|^2 / 2 u_k) (3)
    E[eps | x_t] = sum_k r_k E[eps | x_t, k]                                              (4)

No network has a smaller expected epsilon loss than (4), whose loss is, by the law of total variance,

    floor_t = sum_k w_k a^2 v_k / u_k  +  E_{x_t} sum_k r_k |E[eps | x_t, k] - E[eps | x_t]|^2 / D      (5)

The second term is 0 for one Gaussian. (1) to (4) are Gaussian conditioning; see e.g. C. M. Bishop, "Pattern Recognition
and Machine Learning", section 2.3.3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource
from diffusion_lab.diffusion import NoiseSchedule, extract
from diffusion_lab.streams import Streams


class GaussianMixture(ImageSource):
    """Float images (C,H,H) drawn from a mixture, with the minimum loss of any model.

    Training and test images are independent draws. They are a finite sample: only the loss on test images is bounded
    by `loss_floor`, because a network may memorise the training images. Labels are the components.

    Args:
        means: K entries, each one number for all pixels, or a nested list of shape (C,H,H).
        variances: K variances v_k > 0, each of every pixel.
        weights: K weights w_k > 0, normalised to sum 1; None: all equal.
        channels: C.
        image_size: H, pixels along a side.
        num_images: number of training images.
        num_test_images: number of test images.
        seed: seed of the data, not of the run: all runs have the same images.

    Raises:
        ValueError: a size below 1, a variance or weight that is not positive, lists of unequal length, a mean of
            another shape or one that is not finite as float32.
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
        cure = "give a positive number"
        check_integer("channels", channels, 1, cure)
        check_integer("image_size", image_size, 1, cure)
        check_integer("num_images", num_images, 1, cure)
        check_integer("num_test_images", num_test_images, 1, cure)
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

    def listed(self, split: str) -> ImageSet:
        """By what it is drawn from, because other kinds of machines draw numbers that differ in their last bits."""
        n = self.num_images if split == "train" else self.num_test_images
        parameters = [self.means.tolist(), self.variances.tolist(), self.weights.tolist(), self.streams.seed, split, n]
        return _Drawn(n, hashlib.sha256(repr(parameters).encode()).hexdigest()[:12])

    def sample(self, n: int, position: int) -> tuple[Tensor, Tensor]:
        """x0 (n,C,H,H) float32 and the component (n,) int64 of each; a function of (seed, n, position)."""
        u = self.streams.uniform(n, "data", position, 0)
        component = torch.searchsorted(self.weights.cumsum(0), u, right=True).clamp_(max=len(self.weights) - 1)
        noise = self.streams.normal((n, *self.means.shape[1:]), "data", position, 1)
        deviation = self.variances.sqrt()[component].view(-1, 1, 1, 1).float()
        return noise.mul_(deviation).add_(self.means.float()[component]), component

    def optimal_eps(self, x_t: Tensor, t: Tensor, schedule: NoiseSchedule) -> Tensor:
        """E[eps | x_t] of equation (4): (B,C,H,H), (B,) int64 -> (B,C,H,H), computed in float64."""
        dtype, alpha_bar = x_t.dtype, schedule.alphas_cumprod.to(x_t.device, torch.float64)[t][:, None]
        if schedule.norm is not None:  # to the variance-preserving path, for which (1) to (5) are written
            x_t = x_t.double() / extract(schedule.norm, t, x_t.ndim, torch.float64)
        u = self._total_variance(alpha_bar)
        means = self.means.to(x_t.device).flatten(1)
        centred = x_t.double().flatten(1)[:, None] - alpha_bar.sqrt()[..., None] * means
        responsibility = self._responsibility(centred.square().sum(2), u)
        factor = responsibility * (1 - alpha_bar).sqrt() / u
        return torch.einsum("bk,bkd->bd", factor, centred).view(x_t.shape).to(dtype)

    def loss_floor(self, schedule: NoiseSchedule, labelled: bool = False, samples: int = 4096) -> Tensor:
        """(T,) float64: the smallest expected epsilon loss (mean over C,H,W) at each timestep, equation (5).

        Exact for one Gaussian, and with labels, which leave the first term. For a mixture the second term is a mean
        over `samples` draws of (x0, eps), the same at every t, computed from inner products, so that the cost per t
        does not depend on D.
        """
        alpha_bar = schedule.alphas_cumprod.to("cpu", torch.float64)[:, None]
        floor = (self.weights * alpha_bar * self.variances / self._total_variance(alpha_bar)).sum(1)
        if labelled or len(self.weights) == 1:
            return floor
        means = self.means.flatten(1)
        x0 = self.sample(samples, 2)[0].double().flatten(1)
        eps = self.streams.normal(tuple(x0.shape), "data", 3).double()
        x0_x0, x0_eps, eps_eps = ((p * q).sum(1) for p, q in ((x0, x0), (x0, eps), (eps, eps)))
        x0_mu, eps_mu, mu_mu = x0 @ means.T, eps @ means.T, means @ means.T
        for t, one in enumerate(alpha_bar):
            a, s, u = one.sqrt(), (1 - one).sqrt(), self._total_variance(one)
            x_x = a**2 * x0_x0 + 2 * a * s * x0_eps + s**2 * eps_eps
            x_mu = a * (a * x0_mu + s * eps_mu)
            # (x_t - a mu_j).(x_t - a mu_k), (n,K,K)
            gram = x_x[:, None, None] - x_mu[:, :, None] - x_mu[:, None] + a**2 * mu_mu
            square = gram.diagonal(dim1=1, dim2=2)
            r = self._responsibility(square, u)
            q = r * s / u
            spread = (r * (s / u) ** 2 * square).sum(1) - torch.einsum("nj,njk,nk->n", q, gram, q)
            floor[t] += spread.mean() / means.shape[1]
        return floor

    def _total_variance(self, alpha_bar: Tensor) -> Tensor:
        """u_k: (B,1) -> (B,K)."""
        return alpha_bar * self.variances.to(alpha_bar.device) + 1 - alpha_bar

    def _responsibility(self, square: Tensor, u: Tensor) -> Tensor:
        """r of equation (3) (B,K), from |x_t - a mu_k|^2 (B,K) and u (B,K) or (K,)."""
        log_weight = self.weights.to(square.device).log() - 0.5 * (self.means[0].numel() * u.log() + square / u)
        return log_weight.softmax(1)


class _Drawn(ImageSet):
    """A split that is not drawn: its number of images and a fingerprint of its parameters."""

    def __init__(self, n: int, fingerprint: str) -> None:
        self.labels, self._n, self._fingerprint = None, n, fingerprint

    def __len__(self) -> int:
        return self._n

    def take(self, ids: Sequence[int] | Tensor) -> Tensor:
        raise NotImplementedError("only number and fingerprint are known")

    def fingerprint(self) -> str:
        return self._fingerprint


def _mean(mean: float | list, shape: tuple[int, int, int]) -> Tensor:
    """(C,H,H) float64."""
    value = torch.as_tensor(mean, dtype=torch.float64)
    if value.ndim and tuple(value.shape) != shape:
        raise ValueError(f"means={tuple(value.shape)} must be one number or have the shape {shape}")
    if not torch.isfinite(value.float()).all():  # images are float32
        raise ValueError(f"means={mean} must be finite numbers; use 0.0 for one Gaussian about zero")
    return value.expand(shape)


def _positive(name: str, values: Sequence[float], components: int) -> Tensor:
    """(K,) float64."""
    tensor = torch.as_tensor(values, dtype=torch.float64)
    if tuple(tensor.shape) != (components,) or not (tensor > 0).all() or not torch.isfinite(tensor.float()).all():
        raise ValueError(f"{name}={list(values)} must be {components} positive numbers, one for each of `means`")
    return tensor
