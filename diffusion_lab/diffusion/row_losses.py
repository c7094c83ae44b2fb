"""Another loss of a row than the squared error, around any weighting. With e the error of a row's answer, D numbers,
and s = |e|^2 = D l for the native loss l,

    class        loss of a row, weighted by the base       source
    PseudoHuber  sqrt(s + c^2) - c                         Song & Dhariwal 2023
    Adaptive     s / stop(s + c)^p                         Geng et al. 2025, MeanFlow

Both are functions of s, so they need nothing of the prediction, and each part of a prediction with several heads has
its own. What is logged as the loss, validated and shown to samplers stays the mean square error l, which can be
compared between runs.

A base weights them as it weights l: by its weight on the x0-loss divided by the native scale, which is that of squared
errors. So one weighting no longer means one objective for every prediction, as it does for l.
"""

from __future__ import annotations

import math

from torch import Tensor

from diffusion_lab.arguments import check_made, check_number, check_overrides
from diffusion_lab.diffusion.step import Step
from diffusion_lab.diffusion.weighting import Weighting


class RowLoss(Weighting):
    """base(loss of the rows): a subclass defines `of_square`. Without a record, outside of training steps, base(l).

    Args:
        base: the weighting of the losses.
        normalize: none, or mean weight of the base 1 over uniform timesteps (mean1_uniform) or the sampler's
            (mean1_sampler); that of the base itself must be none.

    Raises:
        ValueError: the base is normalised, or a subclass overrides a weight that its `forward` does not ask.
    """

    uses_record = True

    def __init__(self, base: Weighting, normalize: str = "none") -> None:
        super().__init__(normalize)
        check_overrides(self, "native_weight", "forward")
        self.base = check_made("base", base, Weighting, "use one such as Unit()")
        if base.normalize != "none":
            raise ValueError(f"base.normalize={base.normalize} must be none; use the normalize of the outer weighting")

    def of_square(self, square: Tensor, numbers: int) -> Tensor:
        """The loss of each row: |e|^2 (B,K), D -> (B,K)."""
        raise NotImplementedError

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return self.base.x0_weight(snr, step)

    def native_weight(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return self.base.native_weight(snr, scale, step)

    def weight_to_normalize(self, snr: Tensor, scale: Tensor, step: int) -> Tensor:
        return self.base.weight_to_normalize(snr, scale, step)

    def forward(self, native_loss: Tensor, snr: Tensor, scale: Tensor, step: int, record: Step | None = None) -> Tensor:
        if record is not None:
            numbers = record.x0[0].numel()
            native_loss = self.of_square(numbers * native_loss, numbers)
        seen = {"record": record} if self.base.uses_record else {}
        loss = self.base(native_loss, snr, scale, step, **seen)
        return loss if self.normalize == "none" else loss * self.factor


class PseudoHuber(RowLoss):
    """sqrt(|e|^2 + c^2) - c with c = a sqrt(D) for errors e of D numbers (Song & Dhariwal 2023, "Improved techniques
    for training consistency models", arXiv 2310.14189, section 3.3: a = 0.00054).

    For |e| far above c it is |e|, so that an outlier pulls no more than any other row; far below, |e|^2/(2c). With the
    published a, nearly every error of an untrained model is far above.

    Use: where few rows have by far the largest errors, as at the ends of the noise schedule or in consistency losses.

    Args:
        base: the weighting w of the losses; 1 by default.
        a: c/sqrt(D), in units of the target, > 0.
        normalize: none, or mean w 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler); that of
            the base must be none.
    """

    def __init__(self, base: Weighting, a: float = 0.00054, normalize: str = "none") -> None:
        super().__init__(base, normalize)
        self.a = check_number("a", a, "()", 0, math.inf, "use 0.00054 as published")

    def of_square(self, square: Tensor, numbers: int) -> Tensor:
        c = self.a * math.sqrt(numbers)
        return square / ((square + c**2).sqrt() + c)  # without cancellation where the error is small


class Adaptive(RowLoss):
    """|e|^2 / stop(|e|^2 + c)^p for errors e of D numbers (Geng et al. 2025, "Mean flows for one-step generative
    modeling", arXiv 2505.13447, section 4.3, with its code's c): rows with larger errors have smaller weights.

    Its gradient is that of ln(|e|^2 + c) for p = 1, of 2 sqrt(|e|^2 + c), a pseudo-Huber loss, for p = 1/2, and of
    |e|^2 for p = 0.

    Use: for losses whose targets are made by the network itself, as in method=meanflow.

    Args:
        base: the weighting w of the losses; 1 by default.
        p: power in [0, 1]; 1 for the paper's ImageNet, 0.75 for its CIFAR-10.
        c: > 0, in units of |e|^2; 0.01 in the code for ImageNet, 0.001 in that for CIFAR-10.
        normalize: none, or mean w 1 over uniform timesteps (mean1_uniform) or the sampler's (mean1_sampler); that of
            the base must be none.
    """

    def __init__(self, base: Weighting, p: float = 1.0, c: float = 0.01, normalize: str = "none") -> None:
        super().__init__(base, normalize)
        self.p = check_number("p", p, "[]", 0, 1, "use 1.0, or 0.5 for a pseudo-Huber loss")
        self.c = check_number("c", c, "()", 0, math.inf, "use 0.01")

    def of_square(self, square: Tensor, numbers: int) -> Tensor:
        return square / (square.detach() + self.c) ** self.p
