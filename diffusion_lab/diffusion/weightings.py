"""Published weightings, each as the weight w_x on the x0-loss. With s = SNR^-1/2 the noise level and L_t the bound's
terms, the weight on the eps-loss is w_x/SNR and on the v-loss w_x/(1 + SNR):

    class        w_x                     on the eps-loss      source
    ConstantEps  SNR                     1                    Ho et al. 2020, L_simple
    ConstantX0   1                       1/SNR
    ConstantV    1 + SNR                 1 + 1/SNR = 1/A      Salimans & Ho 2022, section 4
    TruncSNR     max(SNR, 1)             max(1, 1/SNR)        Salimans & Ho 2022, section 4
    MinSNR       min(SNR, g)             min(1, g/SNR)        Hang et al. 2023
    SoftMinSNR   g SNR/(g + SNR)         g/(g + SNR)          Crowson et al. 2024
    MaxSNR       max(SNR, g)             max(1, g/SNR)        Hang et al. 2023, ablation
    P2           SNR/(k + SNR)^g         1/(k + SNR)^g        Choi et al. 2022
    Debiased     sqrt(SNR)               1/sqrt(SNR)          Yu et al. 2023
    EDM          SNR + 1/d^2             1 + s^2/d^2          Karras et al. 2022
    VLB          (SNR_{t-1} - SNR_t)/2   c_t                  Ho et al. 2020
    FDMWarmup    min(SNR, c)             min(1, c s^2)        Wu et al. 2023, their code

Those whose weight on the eps-loss has 1/SNR or s^2 reach 1e9 at the last timesteps of a cosine schedule: there the
sampler or `normalize` has to answer for it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.schedule import NoiseSchedule
from diffusion_lab.diffusion.weighting import Weighting


class ConstantEps(Weighting):
    """w_x = SNR: weight 1 on the eps-loss, whatever is predicted; `Unit` for eps (Ho et al. 2020).

    Use: to train every prediction with the objective of eps, so that a comparison of predictions is not one of
    objectives.
    """

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr


class ConstantX0(Weighting):
    """w_x = 1: weight 1 on the x0-loss, whatever is predicted; 1/SNR on the eps-loss.

    Use: to train every prediction with the objective of x0, in which high noise counts most.
    """

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return torch.ones_like(snr)


class ConstantV(Weighting):
    """w_x = 1 + SNR: weight 1 on the v-loss, whatever is predicted ("SNR+1" of Salimans & Ho 2022, section 4).

    Use: to train every prediction with the objective of v.
    """

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return 1 + snr


class TruncSNR(Weighting):
    """w_x = max(SNR, 1): the larger of the eps-loss and the x0-loss (Salimans & Ho 2022, section 4).

    Differs from Min-SNR's code, which has it for models that predict x0 only: here it is defined for all.

    Use: with x0 and v prediction, when models are distilled or sample in few steps, so that the highest noise must not
    have weight 0.
    """

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr.clamp(min=1)


class MinSNR(Weighting):
    """w_x = min(SNR, gamma) (Hang et al. 2023): min(SNR, gamma)/SNR for eps, min(SNR, gamma)/(SNR + 1) for v.

    Differs from the released code: there `min_snr_k` on a v-model applies the formula of eps and `vmin_snr_k` must be
    asked for; here the prediction decides.

    Use: as the first weighting to try, with any schedule and prediction, and the default; it keeps timesteps of high
    SNR from dominating the loss.

    Args:
        gamma: SNR above which the weight on the x0-loss stops growing, > 0.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(self, gamma: float = 5.0, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.gamma = check_number("gamma", gamma, "()", 0, math.inf, "use 5.0 for the published setting")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr.clamp(max=self.gamma)


class SoftMinSNR(Weighting):
    """w_x = gamma SNR/(gamma + SNR), Min-SNR without the corner (Crowson et al. 2024, HDiT).

    Use: like min_snr, with a smooth transition; common with EDM's preconditioning.

    Args:
        gamma: limit of the weight for SNR -> infinity, > 0; in k-diffusion 1/sigma_data^2, 4 for images of standard
            deviation 0.5.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(self, gamma: float = 5.0, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.gamma = check_number("gamma", gamma, "()", 0, math.inf, "use 5.0, or 4.0 as k-diffusion")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return self.gamma * snr / (self.gamma + snr)


class MaxSNR(Weighting):
    """w_x = max(SNR, gamma), the opposite of Min-SNR (an ablation in the code of Hang et al. 2023).

    Use: as a negative control of min_snr: high SNR keeps the full weight of the eps-loss, and high noise gets more.

    Args:
        gamma: SNR below which the weight on the x0-loss stops falling, > 0; `TruncSNR` has gamma = 1.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(self, gamma: float = 5.0, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.gamma = check_number("gamma", gamma, "()", 0, math.inf, "use 5.0 as for Min-SNR")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr.clamp(min=self.gamma)


class P2(Weighting):
    """w_x = SNR/(k + SNR)^gamma: 1/(k + SNR)^gamma on the eps-loss (Choi et al. 2022, equation 8).

    With k = gamma = 1 it is 1 - A_t on the eps-loss, the weight in SpeeD's code. gamma = 0 is `Unit` for eps, to the
    bit.

    Differs from the P2 code, whose default gamma = 0 turns the weighting off: here it is 1, one of the paper's two.

    Use: for images of 64 pixels and more with eps prediction, when their coarse structure should count more than
    imperceptible details.

    Args:
        k: SNR below which the weight on the eps-loss hardly grows any more, > 0.
        gamma: power, >= 0; 0.5 or 1 in the paper, 0 for weight 1 on the eps-loss.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(self, k: float = 1.0, gamma: float = 1.0, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.k = check_number("k", k, "()", 0, math.inf, "use 1.0 for the published setting")
        self.gamma = check_number("gamma", gamma, "[)", 0, math.inf, "use 1.0 or 0.5 for the published settings")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr / (self.k + snr) ** self.gamma


class Debiased(Weighting):
    """w_x = sqrt(SNR): 1/sqrt(SNR) on the eps-loss (Yu et al. 2023, debiased estimation).

    Use: to give high SNR less weight than the eps-loss does, but more than min_snr does, without a constant to choose.
    """

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr.sqrt()


class EDM(Weighting):
    """w_x = (s^2 + sigma_data^2)/(s sigma_data)^2 = SNR + 1/sigma_data^2 (Karras et al. 2022, table 1).

    The paper uses it with ln s ~ N(-1.2, 1.2^2), which rarely draws the timesteps with large weights; with uniform t
    the objective differs.

    Use: with `prediction=edm` and `schedule=edm`, for which it was made: the loss of F then has weight 1 at every noise
    level.

    Args:
        sigma_data: standard deviation of the pixels, > 0.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(self, sigma_data: float = 0.5, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.sigma_data = check_number("sigma_data", sigma_data, "()", 0, math.inf, "use 0.5 for the published setting")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return snr + self.sigma_data**-2


class VLB(Weighting):
    """w_x(t) = C1_t^2/(2 Vp_t) = (SNR_{t-1} - SNR_t)/2: the bound's terms in nats/dim, up to what no network changes
    (Ho et al. 2020, equation 12, with V = Vp); c_t on the eps-loss.

    At t = 0, where SNR_{-1} is infinite and Vp_0 = 0, Vp_1 stands for Vp_0 as in `FixedSmall`: w_x(0) = 1/(2 Vp_1). The
    bound's own term there is the discretised decoder, which is not a square error.

    The timestep is found from the SNR, which falls strictly: a binary search in the schedule's noise levels.

    Use: when the aim is a good likelihood in bits per dimension; samples look worse.

    Args:
        schedule: the schedule of the run; in a configuration ${schedule}.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(self, schedule: NoiseSchedule, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.schedule = schedule

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        # One part in a million lower, so that float32's rounding of the SNR cannot lead past its own entry.
        levels = snr.double().rsqrt() * (1 - 1e-6)
        t = torch.searchsorted(self.schedule.noise_level, levels).clamp(max=self.schedule.num_timesteps - 1)
        coef1 = self.schedule.posterior_mean_coef1[t]
        precision = torch.exp(-self.schedule.posterior_log_variance_clipped[t])
        return (0.5 * coef1.square() * precision).to(snr.dtype)


class FDMWarmup(Weighting):
    """w_x = min(SNR, c), c = start (end/start)^(step/warmup_steps); from warmup_steps on w_x = SNR, without a clamp
    (the code of Fast Diffusion Model, Wu et al. 2023: start 5, end 500, 200 to 800 steps).

    Differs from the released code: c grows with the optimizer step and not with each call of the loss, because calls
    depend on accumulation and on the number of processes.

    Use: with `method=fdm`, of which it is a part.

    Args:
        start: c at step 0, an SNR > 0.
        end: c at which the clamp is dropped, an SNR of at least `start`.
        warmup_steps: optimizer steps until the clamp is dropped, >= 1.
        normalize: none, or mean weight 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler).
    """

    def __init__(
        self, start: float = 5.0, end: float = 500.0, warmup_steps: int = 400, normalize: str = "none"
    ) -> None:
        super().__init__(normalize)
        self.start = check_number("start", start, "()", 0, math.inf, "use 5.0 for the published setting")
        self.end = check_number("end", end, "[)", self.start, math.inf, "it must reach start, 500.0 in the code")
        self.warmup_steps = check_integer("warmup_steps", warmup_steps, 1, "use 200, 400 or 800 as in the code")

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        if step >= self.warmup_steps:
            return snr
        return snr.clamp(max=self.start * (self.end / self.start) ** (step / self.warmup_steps))
