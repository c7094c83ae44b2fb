"""A mixed prediction in which no head starves: fixed gates in training, least squares in generation."""

from __future__ import annotations

from torch import Tensor

from diffusion_lab.diffusion.generation_heads import GenerationHead
from diffusion_lab.diffusion.head_errors import HeadErrors
from diffusion_lab.diffusion.head_losses import native_scales
from diffusion_lab.diffusion.three_heads import ThreeHeads


class CombinedPrediction(ThreeHeads):
    """Every head learns in every step, most where its conversion to x0 and eps is well conditioned:

        g = q^2 / 2 = (1 - A_t, 1, A_t) / 2      for x0, v, eps;     q = (-sigma, 1, alpha)

    x0 answers at high noise, eps at low noise, v everywhere, and sum g = 1. In generation the three answers are
    combined with the weights that minimise the tracked expected x0-space error (`LeastSquaresHead`). Before anything
    was tracked N is the identity, and the least-squares weights are q^2 / (q^T q) = q^2 / 2: the training gates.

    The answer to the paper's question, "can a more effective method be devised to combine different prediction
    strategies" (Xie & Agam, section 3.2). Differs from its mixed prediction: nothing is selected in training, because
    a minimum of native losses rewards the head with the easiest target and starves the others; the choice is made
    where it is needed, in generation, from errors measured in one space.

    With the weight 1 the objective is E_v (1 + A^2 + (1-A)^2)/2 for one and the same answer of all heads, between 0.75
    and 1 times the v-loss.

    Use: to work on the paper's open question; so far no difference to eps is seen (experiments/equal_loss_slots).

    Args:
        generation_head: weights of the heads in generation.
        tracker: the heads' errors by bin of noise.
    """

    def __init__(self, generation_head: GenerationHead, tracker: HeadErrors) -> None:
        super().__init__(generation_head, tracker)

    def gates(self, squares: Tensor, phi: Tensor, snr: Tensor) -> Tensor:
        return _gates(snr)[:, :, None]

    def gate_of_noise(self, q: Tensor) -> Tensor:
        return q.square() / 2

    def native_scale(self, snr: Tensor) -> Tensor:
        return (_gates(snr) * native_scales(snr)).sum(1)


def _gates(snr: Tensor) -> Tensor:
    """(1 - A, 1, A)/2 with A = SNR/(1 + SNR): (B,) -> (B,3)."""
    return native_scales(snr) / (2 * (1 + snr))[:, None]
