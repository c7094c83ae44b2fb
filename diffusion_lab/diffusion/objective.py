"""The objective at each timestep, for parts that compare losses at different noise: what divides the native loss to
give the x0-loss, and the weight of the x0-loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from diffusion_lab.diffusion.prediction import Prediction
from diffusion_lab.diffusion.schedule import NoiseSchedule
from diffusion_lab.diffusion.weighting import Weighting


def native_scales(schedule: NoiseSchedule, prediction: Prediction) -> Tensor:
    """Native loss divided by the x0-loss of the same answer: (T,) float64."""
    t = torch.arange(schedule.num_timesteps, device=schedule.snr.device)
    return prediction.at(schedule, t).native_scale(schedule.snr)


@torch.no_grad()
def x0_weights(schedule: NoiseSchedule, prediction: Prediction, weighting: Weighting) -> Tensor:
    """w_x(t), the weight of the x0-loss in the objective, before normalisation: (T,) float64.

    Those of step 0, for a weighting that changes during training.
    """
    scale = native_scales(schedule, prediction)
    return weighting.native_weight(schedule.snr, scale, 0).double() * scale
