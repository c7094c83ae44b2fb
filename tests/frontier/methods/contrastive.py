"""Contrastive flow matching (Stoica et al. 2025): away from the velocity of another image."""

from torch import Tensor

from diffusion_lab.auxiliary import Auxiliary
from diffusion_lab.diffusion import Step


class Away(Auxiliary):
    """-|out_i - target_(i+1)|^2, with the image and noise of the next row of the batch, at the time of row i."""

    of_batch = True

    def rows(self, step: Step) -> Tensor:
        x0, eps = (step.gather(rows).roll(-1, 0)[step.position.rows(len(step.t))] for rows in (step.x0, step.eps))
        return -(step.out - step.denoiser.target(x0, eps, step.t)).square().flatten(1).mean(1)
