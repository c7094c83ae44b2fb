"""The maths of diffusion models. PyTorch only."""

from diffusion_lab.diffusion.denoiser import Denoiser, Loss, Reverse
from diffusion_lab.diffusion.likelihood import Bound, bits_per_dim, prior_term, vlb_terms
from diffusion_lab.diffusion.prediction import X0, Epsilon, Estimate, Parts, Prediction, V
from diffusion_lab.diffusion.schedule import NoiseSchedule, extract
from diffusion_lab.diffusion.schedules import cosine, laplace, linear, quadratic, sigmoid, sqrt_linear
from diffusion_lab.diffusion.variance import FixedLarge, FixedSmall, LearnedRange, Variance
from diffusion_lab.diffusion.weighting import MinSNR, Unit, Weighting

__all__ = [
    "X0",
    "Bound",
    "Denoiser",
    "Epsilon",
    "Estimate",
    "FixedLarge",
    "FixedSmall",
    "LearnedRange",
    "Loss",
    "MinSNR",
    "NoiseSchedule",
    "Parts",
    "Prediction",
    "Reverse",
    "Unit",
    "V",
    "Variance",
    "Weighting",
    "bits_per_dim",
    "cosine",
    "extract",
    "laplace",
    "linear",
    "prior_term",
    "quadratic",
    "sigmoid",
    "sqrt_linear",
    "vlb_terms",
]
