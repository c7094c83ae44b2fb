"""The model: network + noise schedule + prediction + reverse variance."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion.network_input import (
    Guidance,
    NetworkTime,
    Plain,
    Preconditioning,
    TimestepIndex,
    time_window,
)
from diffusion_lab.diffusion.prediction import Estimate, LossParts, Prediction
from diffusion_lab.diffusion.schedule import NoiseSchedule, copied, extract, working_dtype
from diffusion_lab.diffusion.time_map import check_takes, images_of, positions, whole_map
from diffusion_lab.diffusion.variance import FixedLarge, Variance, bound_term
from diffusion_lab.diffusion.weighting import native_scales


class Reverse(NamedTuple):
    """p(x_{t-1} | x_t) = N(mean, exp(log_variance))."""

    mean: Tensor  # (B,C,H,W) C1 x0 + C2 x_t
    log_variance: Tensor  # broadcastable to (B,C,H,W)
    x0: Tensor  # (B,C,H,W) the estimate that the mean was computed from


class Loss(NamedTuple):
    """Unweighted losses of N = B rows, or of the N = B H W positions of a map of times, image by image."""

    native: Tensor  # (N,) mean square error in the space of the prediction
    vlb: Tensor  # (N,) w L_t of the hybrid loss; 0 unless the variance is learned
    parts: LossParts  # (N,K) the native loss as a weighting takes it
    errors: Tensor  # (N,E) what the prediction tracks of its heads, detached; E = 0 with one head
    snr: Tensor  # (N,) signal-to-noise ratio of each
    x_t: Tensor | None = None  # (B,C,H,W) the noisy images
    out: Tensor | None = None  # (B,heads*C,H,W) the network's output without the channels of the variance


class Denoiser(nn.Module):
    """Turns a network's output into estimates, reverse steps and losses. Each method calls the network once.

        network(scale_t x_t (B,C,H,W), t (B,) int64, **cond) -> (B, C (prediction.heads + variance.channels), H, W)

    x_t is in the coordinates of the schedule's path. The network always receives original timesteps, also with a
    respaced schedule, or the numbers of `time` instead. Its output is converted to float32, because the conversions
    divide by alpha or sigma; with float64 images and network, all results are float64. Keyword conditions are passed to
    the network unchanged. Gathers and losses never synchronise with the device.

    t may also be a map, broadcastable to (B,1,H,W), with a timestep for each position of an image; the network is then
    given a whole one, and must say `takes_time_map = True`.

    A subclass for another meaning of the answer overrides `estimate`, which every solver asks, and `loss`; with a
    learned variance also `reverse`.

    Args:
        network: the only part with parameters.
        schedule: the T timesteps of this model.
        prediction: what the network predicts.
        variance: of the reverse step; None is `FixedLarge`.
        timesteps: (T,) int64 the network's timestep for each index of the schedule; None for 0..T-1.
        preconditioning: scale of the network's input; None is `Plain`, x_t as it is.
        null_label: the label that stands for no condition; None for a network that was trained without label dropout.
        time: the time that the network is given; None is `TimestepIndex`.

    Attributes:
        sees_only_x_t: whether the network's image channels are those of x_t; one that sees more is not exported.

    Raises:
        ValueError: a subclass overrides `estimate` and not `reverse`, and the variance is learned.
    """

    sees_only_x_t: ClassVar[bool] = True
    timesteps: Tensor

    def __init__(
        self,
        network: nn.Module,
        schedule: NoiseSchedule,
        prediction: Prediction,
        variance: Variance | None = None,
        timesteps: Tensor | None = None,
        preconditioning: Preconditioning | None = None,
        null_label: int | None = None,
        time: NetworkTime | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.schedule = schedule
        self.prediction = prediction
        self.variance = variance or FixedLarge()
        if timesteps is None:
            timesteps = torch.arange(schedule.num_timesteps, device=schedule.betas.device)
        self.register_buffer("timesteps", timesteps, persistent=False)
        self.preconditioning, self.null_label = preconditioning or Plain(), null_label
        self.time = time or TimestepIndex()
        kind = type(self)
        if self.variance.channels and kind.estimate is not Denoiser.estimate and kind.reverse is Denoiser.reverse:
            raise ValueError(
                f"variance={type(self.variance).__name__} must be a fixed one with {kind.__name__}, which overrides "
                "estimate and not reverse; override both, or use variance=fixed_large"
            )
        # Not buffers: a cast of the module must not reach them. They follow `timesteps` to another device.
        self._input_scale = self.preconditioning.input_scale(schedule)
        self._times = self.time.values(schedule)

    @property
    def num_timesteps(self) -> int:
        """T."""
        return self.schedule.num_timesteps

    def respace(self, timesteps: Tensor) -> Self:
        """The same network on a schedule that visits only `timesteps` (S,), increasing; indices then run to S-1."""
        kept = self.timesteps[timesteps.to(self.timesteps.device, non_blocking=True)]
        return self._with(self.network, self.schedule.respace(timesteps), kept)

    def with_network(self, network: nn.Module) -> Self:
        """The same model, of the same class, with another network, such as one around its own."""
        return self._with(network, self.schedule, self.timesteps)

    def sampling(self) -> Self:
        """The model for one sampling loop: itself, unless a subclass keeps something from call to call."""
        return self

    def guided(self, scale: float, channels: int | None = None, interval: tuple[float, float] | None = None) -> Self:
        """The same model with classifier-free guidance, of the first `channels` of the image alone unless None, and at
        noise levels low < sigma/alpha <= high unless the `interval` (low, high) is None.

        Raises:
            ValueError: it was trained without label dropout, so it has no unconditional output; a scale out of range;
                or an interval without a noise level of the model.
        """
        if self.null_label is None:
            raise ValueError(
                f"scale={scale} must be left out: guidance needs a model that was trained with label dropout; train "
                "on data with conditional=True and label_dropout=0.1"
            )
        window = None
        if interval is not None:
            times = self.timesteps if self._times is None else self._times
            window = time_window(times.cpu(), self.schedule.noise_level.cpu(), interval)
        heads = self.prediction.heads
        return self.with_network(Guidance(self.network, scale, self.null_label, heads, channels, window))

    def _with(self, network: nn.Module, schedule: NoiseSchedule, timesteps: Tensor) -> Self:
        made = copied(self)
        made.network, made.schedule, made.timesteps = network, schedule, timesteps
        made._input_scale, made._times = self.preconditioning.input_scale(schedule), self.time.values(schedule)
        return made

    def estimate(self, x_t: Tensor, t: Tensor, **cond: Tensor) -> Estimate:
        """x0 and eps, neither clipped: (B,C,H,W), (B,) or a map -> Estimate."""
        t = whole_map(t, x_t)
        out, _ = self._answer(x_t, t, cond)
        return self._estimate(out, x_t, t)

    def answer(self, x_t: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        """What the network says of x_t, with the scale of its input and its time: (B,C,H,W), (B,) -> (B,heads*C,H,W),
        without the channels of the variance."""
        return self._answer(x_t, t, cond)[0]

    def reverse(self, x_t: Tensor, t: Tensor, clip: bool = False, **cond: Tensor) -> Reverse:
        """One ancestral step's distribution: (B,C,H,W), (B,) or a map -> Reverse.

        Args:
            x_t: noisy images.
            t: indices into the schedule.
            clip: whether x0 is clipped to [-1, 1] before the mean is computed from it.
        """
        t = whole_map(t, x_t)
        if self.variance.channels:
            out, extra = self._answer(x_t, t, cond)
            x0 = self._estimate(out, x_t, t).x0
        else:
            x0 = self.estimate(x_t, t, **cond).x0
            extra = x0[:, :0]
        x0 = x0.clamp(-1, 1) if clip else x0
        mean = self.schedule.posterior_mean(x0, x_t, t)
        return Reverse(mean, self.variance.log_variance(extra, t, self.schedule), x0)

    def loss(self, x0: Tensor, eps: Tensor, t: Tensor, *, at_input: Tensor | None = None, **cond: Tensor) -> Loss:
        """Losses at given noise and timesteps: (B,C,H,W), (B,C,H,W), (B,) or a map -> Loss.

        The bound's term trains only the variance: the estimate in it is detached (and not clipped).

        Args:
            x0: clean images.
            eps: the noise of the target.
            t: timesteps.
            at_input: (B,C,H,W) the noise in x_t; None for `eps`.
            **cond: the network's conditions.
        """
        t = whole_map(t, x0)
        x_t = self.schedule.perturb(x0, eps if at_input is None else at_input, t)
        out, extra = self._answer(x_t, t, cond)
        rows = (t, x0, eps, x_t, out, extra)
        return self._loss(*(rows if t.ndim < 2 else positions(*rows)))._replace(x_t=x_t, out=out)

    def _loss(self, t: Tensor, x0: Tensor, eps: Tensor, x_t: Tensor, out: Tensor, extra: Tensor) -> Loss:
        prediction, (x, alpha, sigma) = self.prediction.at(self.schedule, t), self._point(x_t, t)
        snr = self.schedule.snr[t].to(working_dtype(x0))
        parts = prediction.parts(out, x0, eps, alpha, sigma, snr)
        native = parts.loss.sum(1)
        errors = prediction.errors(out.detach(), x0, x, alpha, sigma)
        if not self.variance.channels:
            return Loss(native, torch.zeros_like(native), parts, errors, snr)
        x0_hat = prediction.estimate(out.detach(), x, alpha, sigma).x0
        log_variance = self.variance.log_variance(extra, t, self.schedule)
        term = bound_term(x0, x0_hat, log_variance, t, self.schedule)
        return Loss(native, self.variance.loss_weight(self.schedule) * term, parts, errors, snr)

    def target(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
        """What the network should answer: (B,C,H,W), (B,C,H,W), (B,) or a map -> (B,heads*C,H,W)."""
        if t.ndim > 1:
            t, image, noise = positions(whole_map(t, x0), x0, eps)
            return images_of(self.target(image, noise, t), x0)
        _, alpha, sigma = self._point(x0, t)
        return self.prediction.at(self.schedule, t).target(x0, eps, alpha, sigma)

    def head_losses(self, x0: Tensor, eps: Tensor, t: Tensor, **cond: Tensor) -> Tensor:
        """Mean square error of each head to its own target, in its native space, before any gate: -> (B,heads).

        With one head it is `loss(...).native`.
        """
        return self.losses_and_bound(x0, eps, t, **cond)[0]

    def losses_and_bound(self, x0: Tensor, eps: Tensor, t: Tensor, **cond: Tensor) -> tuple[Tensor, Tensor]:
        """`head_losses` (B,heads), and the term L_t of the bound (B,) in bits/dim, with the estimate not clipped."""
        x_t = self.schedule.perturb(x0, eps, t)
        out, extra = self._answer(x_t, t, cond)
        prediction, (x, alpha, sigma) = self.prediction.at(self.schedule, t), self._point(x_t, t)
        square = (out - prediction.target(x0, eps, alpha, sigma)).square()
        x0_hat = prediction.estimate(out, x, alpha, sigma).x0
        bound = bound_term(x0, x0_hat, self.variance.log_variance(extra, t, self.schedule), t, self.schedule)
        return square.unflatten(1, (self.prediction.heads, -1)).flatten(2).mean(2), bound

    def head_scales(self) -> Tensor:
        """Native loss of each head divided by its x0-loss, at each timestep: (T,heads) float64."""
        every = torch.arange(self.num_timesteps, device=self.timesteps.device)
        return self.prediction.at(self.schedule, every).head_scales(self.schedule.snr)

    def native_scale(self) -> Tensor:
        """Native loss divided by the x0-loss, at each timestep: (T,) float64."""
        return native_scales(self.schedule, self.prediction)

    def _estimate(self, out: Tensor, x_t: Tensor, t: Tensor) -> Estimate:
        if t.ndim > 1:
            t, answer, noisy = positions(t, out, x_t)
            x0, eps = self._estimate(answer, noisy, t)
            return Estimate(images_of(x0, x_t), images_of(eps, x_t))
        return self.prediction.at(self.schedule, t).estimate(out, *self._point(x_t, t))

    def _point(self, x_t: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x_t, alpha and sigma on the variance-preserving path with the same SNR, which predictions are written for."""
        dtype = working_dtype(x_t)
        alpha, sigma = self.schedule.alpha(t, x_t.ndim, dtype), self.schedule.sigma(t, x_t.ndim, dtype)
        if self.schedule.norm is None:
            return x_t, alpha, sigma
        norm = extract(self.schedule.norm, t, x_t.ndim, dtype)
        return x_t / norm, alpha / norm, sigma / norm

    def _answer(self, x_t: Tensor, t: Tensor, cond: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The network's channels in the working precision: those of the prediction and those of the variance."""
        if t.ndim > 1:
            check_takes(self.network)
        dtype = working_dtype(x_t)
        shown = x_t if self._input_scale is None else extract(self._input_scale, t, x_t.ndim, dtype) * x_t
        time = self.timesteps[t] if self._times is None else self._times[t].to(dtype)
        out = self.network(shown, time, **cond)
        channels = x_t.shape[1]
        heads, extra = channels * self.prediction.heads, channels * self.variance.channels
        if out.shape[1] != heads + extra:
            raise ValueError(
                f"out_channels={out.shape[1]} must be {heads + extra}: {self.prediction.heads} per image channel for "
                f"the prediction and {self.variance.channels} for the variance; build the network with that number"
            )
        out = out.to(dtype)
        if not extra:  # most models; a split costs its backward pass a copy
            return out, out[:, heads:]
        prediction, variance = out.split([heads, extra], dim=1)
        return prediction, variance

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Denoiser:
        super()._apply(fn, recurse)
        device = self.timesteps.device
        if self._input_scale is not None:
            self._input_scale = self._input_scale.to(device)
        if self._times is not None:
            self._times = self._times.to(device)
        return self
