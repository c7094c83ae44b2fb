"""Images to train on and to compare with."""

from diffusion_lab.data.autoencoder import Autoencoder
from diffusion_lab.data.cifar10 import CIFAR10
from diffusion_lab.data.digits import Digits
from diffusion_lab.data.encoding import Encoding
from diffusion_lab.data.fashion_mnist import FashionMNIST
from diffusion_lab.data.gaussian import GaussianMixture
from diffusion_lab.data.image_folder import ImageFolder
from diffusion_lab.data.images import ImageDataModule, ValBatch
from diffusion_lab.data.latents import Latents
from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.pixels import to_float, to_uint8
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource

__all__ = [
    "CIFAR10",
    "ArrayImages",
    "Autoencoder",
    "Digits",
    "Encoding",
    "FashionMNIST",
    "GaussianMixture",
    "ImageDataModule",
    "ImageFolder",
    "ImageSet",
    "ImageSource",
    "Latents",
    "Rows",
    "StepOrder",
    "ValBatch",
    "to_float",
    "to_uint8",
]
