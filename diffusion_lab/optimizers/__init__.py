"""Optimizers beside those of `torch.optim`, the weights that an optimizer is given, and its momentum."""

from diffusion_lab.optimizers.momentum import set_betas
from diffusion_lab.optimizers.muon import Muon, Weights

__all__ = ["Muon", "Weights", "set_betas"]
