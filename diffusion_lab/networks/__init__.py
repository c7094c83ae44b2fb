"""Networks: (x_t, t, **conditions) -> the output that the prediction defines."""

from diffusion_lab.networks.adm import ADMSuperResolution, ADMUNet
from diffusion_lab.networks.layers import timestep_embedding
from diffusion_lab.networks.policy import BetaPolicy
from diffusion_lab.networks.unet import UNet
from diffusion_lab.networks.uvit import UViT

__all__ = ["ADMSuperResolution", "ADMUNet", "BetaPolicy", "UNet", "UViT", "timestep_embedding"]
