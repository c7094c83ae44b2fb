"""Losses beside that of the prediction, each a part of its own."""

from diffusion_lab.auxiliary.base import Auxiliary, Frozen
from diffusion_lab.auxiliary.contrastive import Contrastive
from diffusion_lab.auxiliary.dispersive import Dispersive
from diffusion_lab.auxiliary.repa import REPA
from diffusion_lab.auxiliary.run_network import RunNetwork

__all__ = ["REPA", "Auxiliary", "Contrastive", "Dispersive", "Frozen", "RunNetwork"]
