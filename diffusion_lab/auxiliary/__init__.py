"""Losses beside that of the prediction, each a part of its own."""

from diffusion_lab.auxiliary.base import Auxiliary, Frozen
from diffusion_lab.auxiliary.contrastive import Contrastive
from diffusion_lab.auxiliary.dispersive import Dispersive

__all__ = ["Auxiliary", "Contrastive", "Dispersive", "Frozen"]
