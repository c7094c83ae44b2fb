"""Analyses of trained models: arrays, a figure and a sentence, reproducible to the byte."""

from diffusion_lab.analyses.arrays import Arrays
from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.batch_noise import BatchNoise
from diffusion_lab.analyses.consistency import Consistency
from diffusion_lab.analyses.gradient_variance import GradientVariance
from diffusion_lab.analyses.hessian import Hessian
from diffusion_lab.analyses.interdependence import Interdependence
from diffusion_lab.analyses.interpolation import Interpolation
from diffusion_lab.analyses.lanczos import lanczos
from diffusion_lab.analyses.landscape import Landscape
from diffusion_lab.analyses.optimizer_noise import OptimizerNoise
from diffusion_lab.analyses.per_timestep import PerTimestep
from diffusion_lab.analyses.perform import perform
from diffusion_lab.analyses.prediction_ability import PredictionAbility
from diffusion_lab.analyses.replacement import Replacement
from diffusion_lab.analyses.reward_variance import RewardVariance
from diffusion_lab.analyses.selection import Selection
from diffusion_lab.analyses.slots import Slots
from diffusion_lab.analyses.work import Work

__all__ = [
    "Analysis",
    "Arrays",
    "BatchNoise",
    "Consistency",
    "GradientVariance",
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
