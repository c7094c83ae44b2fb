"""Networks that predict x0, v and eps at once, with 3C channels for images of C channels, in this order.

`MixedPrediction` is that of Xie & Agam, "Rethinking Timesteps Samplers and Prediction Types", section 2.2.

The paper: the last layer of the U-Net gives x0, v and eps, and "we select the minimal loss of the three predictions to
do gradient descent"; the results "are often worse than those from a single prediction". It does not say in which
space the losses are compared, over what (image, batch, pixel), nor which head generates. Each of these is a part
given to `MixedPrediction`. `CombinedPrediction` is ours, in which no head starves: fixed gates in training, least
squares in generation.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from diffusion_lab.diffusion.generation_heads import GenerationHead
from diffusion_lab.diffusion.head_errors import HEADS, HeadErrors, angle, angle_of_log_snr
from diffusion_lab.diffusion.head_gates import Granularity, Reduction, Space, native_scales
from diffusion_lab.diffusion.prediction import Estimate, LossParts, Prediction


class ThreeHeads(Prediction):
    """Three heads that share a network, a rule for their training gates, and one for their answer in generation.

    Training: row i's loss has the three parts g_h E_h with gates g >= 0, sum 1, and E_h the head's native mean square
    error. Divided by the native scales (1, 1 + SNR, SNR) each part is an x0-loss, so every weighting applies; for one
    and the same answer of all heads the parts add up to that answer's x0-loss.

    Generation: with y = (x0_hat - alpha x, v_hat, eps_hat - sigma x), q = (-sigma, 1, alpha) and weights w, sum 1,

        v = sum_h (w_h / q_h) y_h,     x0 = alpha x - sigma v,     eps = sigma x + alpha v

    which is the weighted average of the heads' estimates of x0. Passing through v keeps the pair consistent at every
    noise, alpha x0 + sigma eps = x, and neither of the last two steps divides; 1/alpha or 1/sigma appears only if w
    leans on a head where that head is ill-conditioned. A single head's own answer comes back to within rounding.

    Args:
        generation_head: gives w.
        tracker: the heads' errors, observed after every update.
    """

    heads = len(HEADS)
    tracker: HeadErrors

    def __init__(self, generation_head: GenerationHead, tracker: HeadErrors) -> None:
        super().__init__()
        self.generation_head = generation_head
        self.tracker = tracker

    @property
    def head_names(self) -> tuple[str, ...]:
        return HEADS

    @abstractmethod
    def gates(self, squares: Tensor, phi: Tensor, snr: Tensor) -> Tensor:
        """Training gates from detached native square errors: (B,3,P), (B,), (B,) -> (B,3,P) or (B,3,1)."""

    def head_scales(self, snr: Tensor) -> Tensor:
        return native_scales(snr)

    def gate_of_noise(self, q: Tensor) -> Tensor | None:
        """The gates (B,3) where they depend on the noise alone, else None; q (B,3)."""
        return None

    def target(self, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        return torch.cat([x0, alpha * eps - sigma * x0, eps], dim=1)

    def estimate(self, out: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Estimate:
        x0, v, eps = out.chunk(3, dim=1)
        q = observation(alpha, sigma)
        weights = self.generation_head.weights(q, self.tracker.matrix(angle(alpha, sigma)), self.gate_of_noise(q))
        # In float64, (B,3): w_eps/alpha is 0/tiny or tiny/tiny where the head is not used.
        u = (weights / q).to(out.dtype).unflatten(0, (-1, *[1] * (out.ndim - 1)))
        v = u[..., 0] * (x0 - alpha * x_t) + u[..., 1] * v + u[..., 2] * (eps - sigma * x_t)
        return Estimate(alpha * x_t - sigma * v, sigma * x_t + alpha * v)

    def loss(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """The gated native loss, (B,)."""
        snr = (alpha / sigma).square().flatten()
        return self.parts(out, x0, eps, alpha, sigma, snr).loss.sum(1)

    def parts(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor, snr: Tensor) -> LossParts:
        squares = pixel_squares(self._residuals(out, x0, eps, alpha, sigma))
        gates = self.gates(squares.detach(), angle(alpha, sigma), snr).to(squares.dtype)
        return LossParts((gates * squares).mean(2), self.head_scales(snr))

    @torch.no_grad()
    def errors(self, out: Tensor, x0: Tensor, x_t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        residuals = self._residuals(out, x0, (x_t - alpha * x0) / sigma, alpha, sigma)
        snr = (alpha / sigma).square().flatten()
        gates = self.gates(pixel_squares(residuals), angle(alpha, sigma), snr).mean(2)
        return self.tracker.row(residuals.flatten(2), gates)

    def observe(self, log_snr: Tensor, errors: Tensor) -> None:
        self.tracker.observe(log_snr, errors)

    @torch.no_grad()
    def log_values(self) -> dict[str, Tensor]:
        """By bin of noise, (bins,): each head's share of the recent selections, and its weight in generation now."""
        phi = self.tracker.centres()
        q = observation(phi.cos(), phi.sin())
        weights = self.generation_head.weights(q, self.tracker.matrix(phi), self.gate_of_noise(q))
        shares = self.tracker.shares()
        values = {f"prediction/head_{head}": shares[:, i] for i, head in enumerate(HEADS)}
        return values | {f"prediction/weight_{head}": weights[:, i] for i, head in enumerate(HEADS)}

    def _residuals(self, out: Tensor, x0: Tensor, eps: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        """(B,3,C,H,W): each head's error in its native space."""
        return (out - self.target(x0, eps, alpha, sigma)).unflatten(1, (3, -1))


def observation(alpha: Tensor, sigma: Tensor) -> Tensor:
    """q = (-sigma, 1, alpha): (B,1,...,1) -> (B,3) float64."""
    alpha, sigma = alpha.double().flatten(), sigma.double().flatten()
    return torch.stack([-sigma, torch.ones_like(sigma), alpha], dim=1)


def pixel_squares(residuals: Tensor) -> Tensor:
    """Mean square over the channels: (B,3,C,H,W) -> (B,3,H*W)."""
    return residuals.square().mean(2).flatten(2)


class MixedPrediction(ThreeHeads):
    """Each head's loss is multiplied by a gate, g = reduction(detached losses in a space, averaged to a granularity).

    In the native space, which the paper's words suggest, the plain minimum cannot do what it is meant to. For equally
    good heads E_v = E_x0 + E_eps and E_eps = SNR E_x0: v is never the least and starves; x0 is selected where SNR > 1
    and eps where SNR < 1, that is, each where its target is easy to hit and worth little, the opposite of where the
    paper itself finds them good. But heads do not stay equally good: whichever leads early gets all the gradients and
    leads the more. Measured on digits (experiment=methods_digits): the head with the smallest target, x0, leads at the
    start and keeps nearly every row up to the noisiest timesteps, which it shares with v; with unit weighting
    eps is never selected. In the x0-space (`X0Space`) the losses are of one quantity, but v starts with the least of
    them, and the winner still takes all.

    The rules are objects, not words, because each is a formula, some with an argument (a temperature, a ramp), and your
    own rule is one class. On the command line a rule is given by its class:
    `prediction=mixed prediction.granularity._target_=diffusion_lab.diffusion.PerPixel`.

    Use: to study which prediction is best at which timestep (`analysis=prediction_ability`). In our comparisons no rule
    was better than the best single prediction (experiments/mixed): by batch a minimum trains one head alone, and at the
    least noise a head that has learned nothing there may generate.

    Args:
        space: space in which the heads' losses are compared.
        granularity: for what they are compared: an image, a batch, a bin of noise or a pixel.
        reduction: rule that makes gates of the losses.
        generation_head: weights of the heads in generation.
        tracker: running errors of the heads by bin of noise.

    Raises:
        ValueError: the generation head uses gates that the reduction has only in training.
    """

    reduction: Reduction

    def __init__(
        self,
        space: Space,
        granularity: Granularity,
        reduction: Reduction,
        generation_head: GenerationHead,
        tracker: HeadErrors,
    ) -> None:
        super().__init__(generation_head, tracker)
        if generation_head.needs_gate and reduction.of_noise(torch.zeros(1, dtype=torch.float64)) is None:
            raise ValueError(
                f"generation_head={type(generation_head).__name__} must go with gates that depend on the noise alone, "
                f"which {type(reduction).__name__} has not; use LearnedGate"
            )
        self.space = space
        self.granularity = granularity
        self.reduction = reduction

    def gates(self, squares: Tensor, phi: Tensor, snr: Tensor) -> Tensor:
        ratio = self.space.weights(snr) / native_scales(snr)
        losses = self.granularity.losses(squares, ratio, phi, self.tracker)
        return self.reduction(losses, phi, self.tracker.updates)

    def gate_of_noise(self, q: Tensor) -> Tensor | None:
        return self.reduction.of_noise(torch.atan2(-q[:, 0], q[:, 2]))

    def native_scale(self, snr: Tensor) -> Tensor:
        """That of the gates for heads that are equally good; min(1, SNR) for the minimum in the native space."""
        phi = angle_of_log_snr(snr.log())
        gates = self.reduction(self.space.weights(snr)[:, :, None], phi, self.tracker.updates)[:, :, 0]
        return (gates * native_scales(snr)).sum(1)

    def observe(self, log_snr: Tensor, errors: Tensor) -> None:
        super().observe(log_snr, errors)
        snr = log_snr.double().exp()
        losses = errors[:, : len(HEADS)].double() * self.space.weights(snr) / native_scales(snr)
        self.reduction.observe(angle_of_log_snr(log_snr), losses)


class CombinedPrediction(ThreeHeads):
    """Every head learns in every step, most where its conversion to x0 and eps is well conditioned:

        g = q^2 / 2 = (1 - A_t, 1, A_t) / 2      for x0, v, eps;     q = (-sigma, 1, alpha)

    x0 answers at high noise, eps at low noise, v everywhere, and sum g = 1. In generation the three answers are
    combined with the weights that minimise the tracked expected x0-space error (`LeastSquaresHead`). Before anything
    was tracked N is the identity, and the least-squares weights are q^2 / (q^T q) = q^2 / 2: the training gates.

    It is our proposal for the paper's question, "can a more effective method be devised to combine different prediction
    strategies" (Xie & Agam, section 3.2). Differs from its mixed prediction: nothing is selected in training, because
    a minimum of native losses rewards the head with the easiest target and starves the others; the choice is made
    where it is needed, in generation, from errors measured in one space.

    With the weight 1 the objective is E_v (1 + A^2 + (1-A)^2)/2 for one and the same answer of all heads, between 0.75
    and 1 times the v-loss.

    Use: to study how several predictions can be combined, which Xie & Agam leave open. In our comparisons it did not
    differ from eps (experiments/equal_loss_slots) and was worse than x0 alone (experiments/mixed).

    Args:
        generation_head: weights of the heads in generation.
        tracker: running errors of the heads by bin of noise.
    """

    def gates(self, squares: Tensor, phi: Tensor, snr: Tensor) -> Tensor:
        return _gates(snr)[:, :, None]

    def gate_of_noise(self, q: Tensor) -> Tensor:
        return q.square() / 2

    def native_scale(self, snr: Tensor) -> Tensor:
        return (_gates(snr) * native_scales(snr)).sum(1)


def _gates(snr: Tensor) -> Tensor:
    """(1 - A, 1, A)/2 with A = SNR/(1 + SNR): (B,) -> (B,3)."""
    return native_scales(snr) / (2 * (1 + snr))[:, None]
