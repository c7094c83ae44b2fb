"""The mixed prediction of Xie & Agam, "Rethinking Timesteps Samplers and Prediction Types", section 2.2.

The paper: the last layer of the U-Net gives x0, v and eps, and "we select the minimal loss of the three predictions to
do gradient descent"; the results "are often worse than those from a single prediction". It does not say in which
space the losses are compared, over what (image, batch, pixel), nor which head generates. Each of these is a part
given to `MixedPrediction`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.diffusion.generation_heads import GenerationHead
from diffusion_lab.diffusion.head_errors import HEADS, HeadErrors, angle_of_log_snr
from diffusion_lab.diffusion.head_losses import Granularity, Space, native_scales
from diffusion_lab.diffusion.head_reductions import Reduction
from diffusion_lab.diffusion.three_heads import ThreeHeads


class MixedPrediction(ThreeHeads):
    """Gates g = reduction(losses of the heads, in a space, averaged to a granularity), on detached losses.

    In the native space, which the paper's words suggest, the plain minimum cannot do what it is meant to. For equally
    good heads E_v = E_x0 + E_eps and E_eps = SNR E_x0: v is never the least and starves; x0 is selected where SNR > 1
    and eps where SNR < 1, that is, each where its target is easy to hit and worth little, the opposite of where the
    paper itself finds them good. But heads do not stay equally good: whichever leads early gets all the gradients and
    leads the more. Measured on digits (experiment=methods_digits): the head with the smallest target, x0, leads at the
    start and keeps nearly every row up to the noisiest timesteps, which it shares with v; eps is never selected. In
    the x0-space (`X0Space`) the comparison is fair, though the winner still takes all.

    The rules are objects, not words, because each is a formula, some with an argument (a temperature, a ramp), and your
    own rule is one class. On the command line a rule is given by its class:
    `prediction=mixed prediction.granularity._target_=diffusion_lab.diffusion.PerPixel`.

    Use: to study which prediction wins at which timestep (`analysis=selection`); it has not beaten its best head so
    far.

    Args:
        space: space in which the heads' losses are compared.
        granularity: elements over which the losses are averaged before that.
        reduction: from losses to gates.
        generation_head: weights of the heads in generation.
        tracker: the heads' errors by bin of noise.

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
