"""Optimizers beside those of `torch.optim`, and the weights that an optimizer is given."""

from diffusion_lab.optimizers.muon import Muon, Weights

__all__ = ["Muon", "Weights"]
