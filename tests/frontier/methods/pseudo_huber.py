"""The pseudo-Huber loss of Song and Dhariwal (2023), "Improved Techniques for Training Consistency Models"."""

from dataclasses import replace

from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class HuberStep(DiffusionModule):
    """sqrt(|r|^2 + c^2) - c of a row's residual r, with c = 0.00054 sqrt(d) for d numbers, in place of |r|^2/d."""

    def losses(self, pairs: Pairs) -> Losses:
        usual, d = super().losses(pairs), pairs.x0[0].numel()
        c = 0.00054 * d**0.5
        return replace(usual, objective=(d * usual.objective + c**2).sqrt() - c)


class PseudoHuber(DiffusionModel):
    """A denoiser that is trained with it."""

    trains = HuberStep
