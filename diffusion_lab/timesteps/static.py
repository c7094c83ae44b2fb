"""Timestep samplers whose distribution is fixed before training: formulas on the timestep's number, and a file."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import ReadPath, check_integer, check_number
from diffusion_lab.diffusion import NoiseSchedule, Prediction, Weighting, native_scales, x0_weights
from diffusion_lab.timesteps.base import FixedSampler, TimestepSampler
from diffusion_lab.timesteps.continuous import check_shift, halfway, open_masses

ROUNDING = 1e-9  # a sum this near to 1 is a distribution as it was written, and its numbers are kept to the bit


class Uniform(TimestepSampler):
    """p_t = 1/T, the distribution of DDPM (Ho et al. 2020, Algorithm 1).

    Use: as the baseline of every comparison, and when a weighting alone is to change the objective.

    Args:
        num_timesteps: T, the number of timesteps.
    """

    _p: Tensor

    def __init__(self, num_timesteps: int) -> None:
        super().__init__(num_timesteps)
        self.register_buffer(
            "_p", torch.full((num_timesteps,), 1.0 / num_timesteps, dtype=torch.float64), persistent=False
        )

    def probabilities(self, step: int) -> Tensor:
        return self._p

    def quantile(self, u: Tensor, step: int) -> Tensor:
        # floor(u T) needs no table, so its cost does not depend on T.
        return (u * self.num_timesteps).long()


class LogitNormal(FixedSampler):
    """t = round((T-1) sigmoid(z)),  z ~ N(mean, std^2): the sampler that Kim et al. (2025) call log-normal.

    The bin masses, with Phi the normal distribution function and edges e_j = logit((j - 1/2)/(T - 1)), are

        p_t = Phi((e_{t+1} - mean)/std) - Phi((e_t - mean)/std),   e_0 = -inf, e_T = +inf.

    They are symmetric about T/2 for mean 0; the first and the last timesteps are almost never drawn.

    SD3's shift S (Esser et al. 2024, equation 23) adds ln S to the mean: logit u' = logit u + ln S for u = sigmoid(z).
    It changes which timesteps are drawn, whereas a schedule's shift changes the SNR of each timestep; if both are set,
    their effects add up. For the same distribution on the path's parameter instead of the number of the timestep, use
    `LogSNR` with a normal distribution.

    Differs from Kim et al. section 10: the rounding is not stated there; here it is to the nearest integer, because
    then both ends are treated alike. It is not the log-normal distribution in sigma of Karras et al. (2022).

    Use: as the first sampler to try, and the default. In `experiment=schedule_by_sampler`, after 800 steps on digits,
    it was better than uniform on cosine, rectified flow and edm with every prediction, and since SD3 it is the usual
    one for flow matching; on Fashion-MNIST at 14 pixels, with the default's other parts, it was worse, 1.18 [1.07,
    1.31]. The gain is one of short trainings: in `experiment=budgets_digits` it shrinks with every doubling of the
    steps, and nothing of it is left in the mean at 12,800. Compare it with uniform on your own images, and before a
    long training.

    Args:
        num_timesteps: T >= 2.
        mean: mean of z; positive draws noisier timesteps.
        std: standard deviation of z, > 0.
        reweight: whether the loss is weighted with 1/(T p_t). The weights at both ends are then very large.
        shift: S > 0; more than 1 draws noisier timesteps; 3 in SD3 at 1024 x 1024 pixels.

    Raises:
        ValueError: T < 2, std <= 0, shift <= 0, or `reweight` with a distribution so narrow that a probability
            underflows to zero.
    """

    def __init__(
        self, num_timesteps: int, mean: float = 0.0, std: float = 1.0, reweight: bool = False, shift: float = 1.0
    ) -> None:
        check_integer("num_timesteps", num_timesteps, 2, "use 1000 as most papers do")
        check_number("std", std, "()", 0, math.inf, "use 1.0 for the published setting")
        check_shift(shift)
        inner = (torch.arange(1, num_timesteps, dtype=torch.float64) - 0.5) / (num_timesteps - 1)
        super().__init__(normal_bins((torch.logit(inner) - (mean + math.log(shift))) / std), reweight)
        self.mean, self.std, self.shift = mean, std, shift


class Power(FixedSampler):
    """p_t proportional to ((t + 1)/T)^power: towards t = T for power > 0, towards t = 0 for power < 0.

    Xie & Agam, sections 2.1 and 3.1, train with more weight near T and with more weight near 0; the shape is not
    stated there. This family has both, with the uniform distribution (power 0) between them.

    Use: to tilt the uniform distribution towards the noise or towards the data, as a check whether the direction
    matters.

    Args:
        num_timesteps: T, the number of timesteps.
        power: finite; -1, -0.5, 0.5, 1 and 2 are usual values.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: power is not finite, or so large that a probability underflows to zero with `reweight`.
    """

    def __init__(self, num_timesteps: int, power: float = 1.0, reweight: bool = False) -> None:
        check_integer("num_timesteps", num_timesteps, 1, "use 1000 as most papers do")
        check_number("power", power, "()", -math.inf, math.inf, "use 1.0 for p_t proportional to t + 1")
        u = torch.arange(1, num_timesteps + 1, dtype=torch.float64) / num_timesteps
        super().__init__(torch.softmax(power * u.log(), 0), reweight)
        self.power = power


class LogNormal(FixedSampler):
    """ln s ~ N(mean, std^2), then the timestep whose noise level s_t = sqrt((1-A_t)/A_t) is nearest.

        p_t = Phi((ln e_{t+1} - mean)/std) - Phi((ln e_t - mean)/std),   e_t = (s_{t-1} + s_t)/2,  e_0 = 0, e_T = inf

    It is the distribution of Karras et al. (2022, EDM, Table 1: mean -1.2, std 1.2), which Kim et al. (2025) name but
    do not use: see `LogitNormal`. The nearest timestep is the nearest in s, as EDM's wrapper of discrete models rounds
    (edm `iDDPMPrecond.round_sigma`).

    Use: with EDM's schedule and prediction; on other schedules, to concentrate training on a range of noise levels.

    Args:
        schedule: noise schedule with T timesteps.
        mean: mean of ln s; -0.4 in EDM2.
        std: standard deviation of ln s, > 0; 1.0 in EDM2.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: std <= 0, no timestep has mass, or `reweight` with a timestep that has none.
    """

    def __init__(self, schedule: NoiseSchedule, mean: float = -1.2, std: float = 1.2, reweight: bool = False) -> None:
        check_number("std", std, "()", 0, math.inf, "use 1.2 as EDM does")
        level = schedule.noise_level
        super().__init__(normal_bins((halfway(level).log() - mean) / std), reweight)
        self.mean, self.std = mean, std


def normal_bins(z: Tensor) -> Tensor:
    """Masses of N(0, 1) between increasing edges, the outer bins open: (T-1,) -> (T,) float64."""
    # Not 1 - Phi, which loses all digits of the upper tail; erfc keeps those of both.
    return open_masses(0.5 * torch.erfc(-z / math.sqrt(2)), 0.5 * torch.erfc(z / math.sqrt(2)))


class ByWeight(FixedSampler):
    """p_t = w_t / sum_s w_s, and every loss weighted with 1/(T p_t): a weighting's objective, all of it in the draws.

    With w_t the weight of the prediction's own loss, every draw then has the same weight,

        w_t / (T p_t) = (1/T) sum_s w_s,

    so the expected loss and gradient are those of uniform timesteps that are weighted with w. w is that of the first
    step. A weighting that changes later, or that also depends on a row's loss, keeps its objective too, and only its
    weights are no longer all alike.

    Importance sampling in proportion to the known factor of the integrand. Differs from
    `gradient_variance form=root_second_moment reweight=true`: nothing is measured.

    Use: in short trainings, in place of uniform timesteps with a weighting such as min_snr or p2; whether the gain
        lasts is not measured.

    Args:
        schedule: noise schedule of the run.
        prediction: of the run, whose own loss is weighted.
        weighting: of the run.

    Raises:
        ValueError: a weight is not a finite number above zero, or so near to it that 1/p_t is not finite.
    """

    def __init__(self, schedule: NoiseSchedule, prediction: Prediction, weighting: Weighting) -> None:
        weights = x0_weights(schedule, prediction, weighting) / native_scales(schedule, prediction)
        t = int(weights.argmin())
        if not weights[t] > 0:
            raise ValueError(f"weighting={weights[t].item()} at t={t} must be above 0 everywhere; use sampler=uniform")
        super().__init__(weights, reweight=True)


class FromFile(FixedSampler):
    """p_t is line t of a file, divided by the sum of all lines unless that is 1 up to rounding.

    The configuration reads the file (`distribution_file`) and the run records the numbers. A run does not depend on the
    file afterwards, and nothing that reads its folder opens the file; with a changed file it is another run.


    Use: for a distribution that comes from elsewhere: from `diffusion-lab show --write`, another trainer or a pilot
    run.

    Args:
        num_timesteps: T, the number of timesteps.
        path: the file, relative to the working folder; the class itself only names it in messages.
        probabilities: its T numbers, the least noisy timestep first, or a text that says what is wrong with it. The
            configuration fills it in from `path`.
        reweight: whether the loss is weighted with 1/(T p_t).

    Raises:
        ValueError: the file is at fault or does not hold T numbers.
    """

    def __init__(
        self, num_timesteps: int, path: ReadPath | None, probabilities: list[float] | str, reweight: bool = False
    ) -> None:
        check_integer("num_timesteps", num_timesteps, 1, "use 1000 as most papers do")
        cure = "write one with diffusion-lab show sampler=... --write FILE"
        if isinstance(probabilities, str):
            raise ValueError(f"path={path} must be a file of T numbers, and it {probabilities}; {cure}")
        if len(probabilities) != num_timesteps:
            held = f"T={num_timesteps} numbers, one per line, and it holds {len(probabilities)}"
            raise ValueError(f"path={path} must hold {held}; {cure} for this schedule")
        p = torch.tensor(probabilities, dtype=torch.float64)
        super().__init__(p, reweight)
        if abs(float(p.sum()) - 1) < ROUNDING:
            self._p.copy_(p)
            self._cdf.copy_(p.cumsum(0))
