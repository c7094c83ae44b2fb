"""Analyses of trained models: arrays, a figure and a sentence, reproducible to the byte."""

from diffusion_lab.analyses.base import Analysis, Arrays, Result, Work
from diffusion_lab.analyses.gradients.batch_noise import BatchNoise
from diffusion_lab.analyses.gradients.gradient_variance import GradientVarianceByTimestep
from diffusion_lab.analyses.losses.interdependence import Interdependence
from diffusion_lab.analyses.losses.per_timestep import PerTimestep
from diffusion_lab.analyses.losses.slots import Slots
from diffusion_lab.analyses.perform import perform
from diffusion_lab.analyses.policy.reward_variance import RewardVariance
from diffusion_lab.analyses.policy.selection import Selection
from diffusion_lab.analyses.samples.consistency import Consistency
from diffusion_lab.analyses.samples.prediction_ability import PredictionAbility
from diffusion_lab.analyses.samples.replacement import Replacement
from diffusion_lab.analyses.weights.hessian import Hessian
from diffusion_lab.analyses.weights.interpolation import Interpolation
from diffusion_lab.analyses.weights.lanczos import lanczos
from diffusion_lab.analyses.weights.landscape import Landscape
from diffusion_lab.analyses.weights.optimizer_noise import OptimizerNoise

__all__ = [
    "Analysis",
    "Arrays",
    "BatchNoise",
    "Consistency",
    "GradientVarianceByTimestep",
    "Hessian",
    "Interdependence",
    "Interpolation",
    "Landscape",
    "OptimizerNoise",
    "PerTimestep",
    "PredictionAbility",
    "Replacement",
    "Result",
    "RewardVariance",
    "Selection",
    "Slots",
    "Work",
    "lanczos",
    "perform",
]
