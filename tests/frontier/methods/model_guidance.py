"""Model-guidance (Tang et al. 2025, arXiv 2502.12154): guidance that is learned, so that sampling needs one call."""

import torch

from diffusion_lab.training import DiffusionModel, DiffusionModule, Losses, Pairs


class GuidedStep(DiffusionModule):
    """|out - (target + w sg(out - free))|^2, `free` without the label; rows without one keep their target."""

    weight = 0.5

    def losses(self, pairs: Pairs) -> Losses:
        of, label = self.denoiser, pairs.cond["label"]
        assert of.null_label is not None, "with dataset.label_dropout above 0"
        x_t, target = of.schedule.perturb(pairs.x0, pairs.eps, pairs.t), of.target(pairs.x0, pairs.eps, pairs.t)
        out = of.answer(x_t, pairs.t, **pairs.cond)
        with torch.no_grad():
            free = of.answer(x_t, pairs.t, **{**pairs.cond, "label": torch.full_like(label, of.null_label)})
            toward = torch.where((label == of.null_label).view(-1, 1, 1, 1), 0.0, out - free)
        plain, guided = ((out - aim).square().flatten(1).mean(1) for aim in (target, target + self.weight * toward))
        return Losses(plain.detach(), guided)


class ModelGuided(DiffusionModel):
    """A denoiser that is trained with it; it is sampled without guidance."""

    trains = GuidedStep
