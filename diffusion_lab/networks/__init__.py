"""Networks: (x_t, t, **conditions) -> the output that the prediction defines; and the pairs of networks of a GAN."""

from diffusion_lab.networks.adm import ADMSuperResolution, ADMUNet
from diffusion_lab.networks.adversarial import AdversarialLoss, AdversarialNetworks, Generator, Hinge, NonSaturating
from diffusion_lab.networks.any_size import AnySizeUNet
from diffusion_lab.networks.biggan import BigGAN
from diffusion_lab.networks.dcgan import DCGAN
from diffusion_lab.networks.diffusers_model import Diffusers
from diffusion_lab.networks.dit import DiT
from diffusion_lab.networks.layers import timestep_embedding
from diffusion_lab.networks.policy import BetaPolicy
from diffusion_lab.networks.unet import UNet
from diffusion_lab.networks.uvit import UViT

__all__ = [
    "ADMSuperResolution", "ADMUNet", "AdversarialLoss", "AdversarialNetworks", "AnySizeUNet", "BetaPolicy", "BigGAN",
    "DCGAN", "DiT", "Diffusers", "Generator", "Hinge", "NonSaturating", "UNet", "UViT", "timestep_embedding",
]  # fmt: skip
