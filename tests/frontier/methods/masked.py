"""A masked discrete process (Sahoo et al. 2024, MDLM) on black and white images."""

import torch
import torch.nn.functional as F
from torch import Tensor

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.diffusion.denoiser import Loss
from diffusion_lab.diffusion.prediction import LossParts
from diffusion_lab.solvers import Solver
from diffusion_lab.training import DiffusionModel


class MaskedDenoiser(Denoiser):
    """A pixel is masked, 0 in place of -1 or 1, where Phi(eps) < m_t = (t + 1)/T; the network's answer is a logit."""

    def loss(self, x0: Tensor, eps: Tensor, t: Tensor, **cond: Tensor) -> Loss:
        bits, share = (x0 > 0).to(x0), ((t + 1) / self.num_timesteps).to(x0)
        mask = torch.special.ndtr(eps) < share.view(-1, 1, 1, 1)
        x_t = torch.where(mask, 0.0, 2 * bits - 1)
        out = self.network(x_t, t, **cond)
        entropy = F.binary_cross_entropy_with_logits(out, bits, reduction="none")
        native = (mask * entropy).flatten(1).mean(1) / share  # MDLM's bound, in nats for a pixel
        parts = LossParts(native[:, None], torch.ones_like(native)[:, None])
        return Loss(
            native, torch.zeros_like(native), parts, native.new_zeros(len(t), 0), torch.ones_like(native), x_t, out
        )


class Masked(DiffusionModel):
    """A network that fills in masked pixels."""

    generates = MaskedDenoiser


class Unmask(Solver):
    """From all masked: of each masked pixel the share 1 - m_s/m_t is drawn in a step from t to s."""

    def __init__(self, steps: int = 20) -> None:
        self.steps = steps

    def describe(self) -> str:
        return f"unmask-{self.steps}"

    def check(self, schedule) -> None:
        pass

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise, bar, cond: dict[str, Tensor]) -> Tensor:
        x, last = torch.zeros_like(x_T), denoiser.num_timesteps
        for k in bar(self.steps):
            left = self.steps - k
            t = torch.full((len(x),), left * last // self.steps - 1, device=x.device)
            on = torch.sigmoid(denoiser.network(x, t, **cond))
            u, chosen = torch.special.ndtr(noise(2 * k, x)), torch.special.ndtr(noise(2 * k + 1, x)) < 1 / left
            x = torch.where((x == 0) & chosen, torch.where(u < on, 1.0, -1.0), x)
        return x
