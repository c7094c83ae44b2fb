"""Annealing: the learning rate and Adam's betas as pure functions of the optimizer step."""

from diffusion_lab.annealing.momentum import MDLRC, ConstantBeta1, Demon
from diffusion_lab.annealing.rate import Annealing, Constant, Cosine, Hyper, Linear, Warmup

__all__ = ["MDLRC", "Annealing", "Constant", "ConstantBeta1", "Cosine", "Demon", "Hyper", "Linear", "Warmup"]
