"""What the network is given in place of x_t, t and its label, which remain what they are everywhere else.

The process, the targets, the losses and the solvers keep x_t; only what the network is shown is multiplied by a number
that depends on t (`Preconditioning`). In the same way t remains the index of a timestep, and the network is given a
time (`NetworkTime`). With `Guidance` it is given the label and the null label at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule
from diffusion_lab.diffusion.time_map import takes_time_map


class NetworkTime(ABC):
    """A rule for the number; stateless. It reads the schedule that is walked, whose tables keep those of the timesteps
    that a respaced one visits."""

    @abstractmethod
    def values(self, schedule: NoiseSchedule) -> Tensor | None:
        """(T,) float64, the network's time at each timestep; None for the index among the original timesteps."""


class TimestepIndex(NetworkTime):
    """t itself, 0 .. T-1, int64 (Ho et al. 2020; DiT)."""

    def values(self, schedule: NoiseSchedule) -> None:
        return None


class PathPosition(NetworkTime):
    """scale s, with s in [0, 1] the parameter of the path, 0 at the data (`NoiseSchedule.position`).

    A network with sinusoidal features made for indices needs the scale 1000 (SD3, and diffusers' flow matching): over
    [0, 1] itself most of its features hardly change. SiT's network is given 1 - s as it is.

    Args:
        scale: > 0; 1000 in SD3, 1 for s itself.
    """

    def __init__(self, scale: float = 1000.0) -> None:
        self.scale = check_number("scale", scale, "()", 0, math.inf, "use 1000.0 as SD3 does")

    def values(self, schedule: NoiseSchedule) -> Tensor:
        return self.scale * schedule.position


class LogNoise(NetworkTime):
    """scale ln(s)/4 with the noise level s = sigma/alpha (Karras et al. 2022, EDM, table 1: c_noise with scale 1).

    EDM's range, 0.002 to 80, is -1.6 to 1.1. Sinusoidal features made for indices hardly change there: EDM's own
    networks have others. A scale of 250 spreads it over some 660 numbers.

    Args:
        scale: > 0; 1 in EDM, 250 for networks with features made for indices.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = check_number("scale", scale, "()", 0, math.inf, "use 1.0 for the published setting")

    def values(self, schedule: NoiseSchedule) -> Tensor:
        return -self.scale * schedule.log_snr / 8


class Preconditioning(ABC):
    """A rule for the scale; stateless. It reads the schedule that is walked, so a respaced one has the scale of its
    own A, the same at the timesteps that it keeps."""

    @abstractmethod
    def input_scale(self, schedule: NoiseSchedule) -> Tensor | None:
        """(T,) float64, the factor on x_t at each timestep; None for x_t itself."""


class Plain(Preconditioning):
    """The network is shown x_t itself (Ho et al. 2020)."""

    def input_scale(self, schedule: NoiseSchedule) -> None:
        return None


class FDMScale(Preconditioning):
    """The network is shown (S_t/sqrt(A_t)) x_t = S_t (x_0 + s_t eps), with the mean of a critically damped oscillator

        S_t = A_t^m (1 - m ln A_t),     s_t = sqrt((1 - A_t)/A_t)

    (Fast Diffusion Model, Wu et al. 2023). This is our port to a discrete schedule: with B_t = -ln A_t, the schedule's
    integral of beta, S = exp(-m B)(1 + m B) is the paper's. The noise-to-signal ratio is the schedule's own. For
    pixels of variance 1 the input's standard deviation is S_t/sqrt(A_t): at most 1.21 for m = 1, where it falls to 0 at
    the end; for m = 0.5 it grows with the noise, to 12 at the end of the cosine schedule of 4000; for m = 2 it is 0
    over the last part, so that the network is shown nothing.

    Differs from the released code: its time is linear in s between the model's smallest and largest noise level, for
    every process; on a discrete cosine schedule, whose s ends at 8e4, that is S = 1 nearly everywhere. Its
    multiplier is 2 by default, in its README 1.

    Args:
        multiplier: m > 0.
    """

    def __init__(self, multiplier: float = 1.0) -> None:
        self.multiplier = check_number("multiplier", multiplier, "()", 0, math.inf, "use 1.0, which keeps the scale")

    def input_scale(self, schedule: NoiseSchedule) -> Tensor:
        a, m = schedule.alphas_cumprod, self.multiplier
        scale = torch.pow(a, m - 0.5) * (1 - m * a.log())
        return scale if schedule.norm is None else scale / schedule.norm


class EDMScale(Preconditioning):
    """The network is shown c_in (x_0 + s eps), c_in = 1/sqrt(s^2 + d^2), which has variance 1 for images of variance
    d^2 (Karras et al. 2022, EDM, table 1):

        x_t / sqrt(sigma_t^2 + alpha_t^2 d^2),   d = sigma_data

    Args:
        sigma_data: standard deviation of the images, > 0.
    """

    def __init__(self, sigma_data: float = 0.5) -> None:
        self.sigma_data = check_number("sigma_data", sigma_data, "()", 0, math.inf, "use 0.5 for the published setting")

    def input_scale(self, schedule: NoiseSchedule) -> Tensor:
        return (schedule.noise_scale.square() + (self.sigma_data * schedule.signal_scale).square()).rsqrt()


class PreservingScale(Preconditioning):
    """The network is shown x_t / sqrt(alpha_t^2 + sigma_t^2), the point of the variance-preserving path with the same
    SNR; on such a path x_t itself. With it a path is the variance-preserving one under another timestep grid."""

    def input_scale(self, schedule: NoiseSchedule) -> Tensor | None:
        return None if schedule.norm is None else 1 / schedule.norm


class Guidance(nn.Module):
    """A network that is evaluated with the label and with the null label, in one call with twice the rows.

        out = out_null + scale (out_label - out_null)

    eps, x0 and v are affine in one another at given x_t and t, so guiding any of them is the same; with several heads
    each is guided. The reverse variance is that of the labelled answer.

    Ho and Salimans' w and U-ViT's "CFG scale" are scale - 1: their 0.4 is 1.4 here. scale = 1 is no guidance.

    With `channels` only the first of the image's channels are guided and the others are those of the labelled answer.
    The published code of DiT and SiT guides three of the four channels of its latents; the formula has no such
    exception, so all are guided by default.

    Rows whose time lies outside of `window` have the labelled answer alone. Where all do, that is the only call, for
    which the host waits for the device.

    Args:
        network: trained with label dropout.
        scale: >= 0.
        null_label: the label that stands for no condition.
        heads: the prediction's channels per image channel; the channels behind them are the variance's.
        channels: largest number of guided channels of each head, >= 1; None: all.
        window: (low, high), the network's times between which it is guided; None: all.

    Raises:
        ValueError: a scale or a number of channels out of range.
    """

    def __init__(
        self,
        network: nn.Module,
        scale: float,
        null_label: int,
        heads: int = 1,
        channels: int | None = None,
        window: tuple[float, float] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.window = network, window
        self.takes_time_map = takes_time_map(network)
        self.scale = check_number("scale", scale, "[)", 0, float("inf"), "use 1.5, or 1.0 for none")
        self.null_label, self.heads = null_label, heads
        self.channels = check_channels(channels)

    def forward(self, x: Tensor, t: Tensor, label: Tensor, **cond: Tensor) -> Tensor:
        """As the network's: x (B,C,H,W), t (B,) or a map, label (B,) -> (B,out_channels,H,W)."""
        scale: float | Tensor = self.scale
        if self.window is not None:
            inside = (t > self.window[0]) & (t < self.window[1])
            if not inside.any():
                return self.network(x, t, label=label, **cond)
            scale = torch.where(inside, self.scale, 1.0)
            scale = scale if t.ndim > 1 else scale[:, None, None, None]
        labels = torch.cat([label, torch.full_like(label, self.null_label)])
        twice = {key: torch.cat([value, value]) for key, value in cond.items()}
        out, out_null = self.network(torch.cat([x, x]), torch.cat([t, t]), label=labels, **twice).chunk(2)
        guided = self.heads * x.shape[1]
        prediction = out_null[:, :guided] + scale * (out[:, :guided] - out_null[:, :guided])
        if self.channels is not None:
            channel = torch.arange(guided, device=x.device) % x.shape[1]
            prediction = torch.where((channel < self.channels)[:, None, None], prediction, out[:, :guided])
        return torch.cat([prediction, out[:, guided:]], dim=1)


def check_channels(channels: int | None) -> int | None:
    """`channels` if it is None or an integer >= 1, else ValueError."""
    return channels if channels is None else check_integer("channels", channels, 1, "use 3 as DiT, or null for all")


def check_interval(interval: Sequence[float] | None) -> tuple[float, float] | None:
    """`interval` as (low, high) if it is None or two noise levels 0 <= low < high, else ValueError."""
    if interval is None:
        return None
    cure = "use two noise levels such as [0.3, 5], or null for all"
    if isinstance(interval, str) or len(interval) != 2:
        raise ValueError(f"interval={interval!r} must be two numbers; {cure}")
    low = check_number("interval[0]", interval[0], "[)", 0, math.inf, cure)
    return low, check_number("interval[1]", interval[1], "()", low, math.inf, cure)


def time_window(times: Tensor, levels: Tensor, interval: tuple[float, float]) -> tuple[float, float]:
    """The times between which low < noise level <= high; an end lies halfway between two timesteps.

    Args:
        times: (T,) the network's time at each timestep, which rises or falls.
        levels: (T,) noise levels, which rise.
        interval: (low, high).

    Raises:
        ValueError: no timestep has such a noise level, or the times neither rise nor fall.
    """
    times, steps = times.double(), times.double().diff()
    inside = ((levels > interval[0]) & (levels <= interval[1])).nonzero().flatten().tolist()
    if not inside:
        raise ValueError(
            f"interval={list(interval)} must hold a noise level of the model, {levels[0]:.4g} to {levels[-1]:.4g}; use "
            "null for all of them"
        )
    if not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError("interval must be null, because the network's time neither rises nor falls with the noise")
    first, last = inside[0], inside[-1]
    rising = len(times) < 2 or bool(steps[0] > 0)
    low = -math.inf if first == 0 else float(times[first - 1] + times[first]) / 2
    high = math.inf if last == len(times) - 1 else float(times[last] + times[last + 1]) / 2
    return (low, high) if rising else (-math.inf if math.isinf(high) else high, math.inf if math.isinf(low) else low)
