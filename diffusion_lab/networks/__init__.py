"""Networks: (x_t, t, **conditions) -> what the prediction asks for."""

from diffusion_lab.networks.layers import timestep_embedding
from diffusion_lab.networks.policy import BetaPolicy
from diffusion_lab.networks.unet import UNet

__all__ = ["BetaPolicy", "UNet", "timestep_embedding"]
