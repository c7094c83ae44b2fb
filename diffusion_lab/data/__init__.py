"""Images to train on and to compare with."""

from diffusion_lab.data.autoencoder import Autoencoder
from diffusion_lab.data.celeba import CelebA
from diffusion_lab.data.celebahq import CelebAHQ
from diffusion_lab.data.cifar10 import CIFAR10
from diffusion_lab.data.conditions import Conditions
from diffusion_lab.data.digits import Digits
from diffusion_lab.data.encoding import Encoding
from diffusion_lab.data.fashion_mnist import FashionMNIST
from diffusion_lab.data.gaussian import GaussianMixture
from diffusion_lab.data.hugging_face import HuggingFace
from diffusion_lab.data.image_folder import ImageFolder
from diffusion_lab.data.imagenet import ImageNet
from diffusion_lab.data.images import ImageDataModule, ValBatch
from diffusion_lab.data.latents import Latents
from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.photos import Photos
from diffusion_lab.data.pixels import to_float, to_uint8
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource
from diffusion_lab.data.super_resolution import SuperResolution
from diffusion_lab.data.task import ImageGeneration, Task

__all__ = [
    "CIFAR10",
    "ArrayImages",
    "Conditions",
    "CelebA",
    "CelebAHQ",
    "Autoencoder",
    "Digits",
    "Encoding",
    "FashionMNIST",
    "GaussianMixture",
    "HuggingFace",
    "ImageDataModule",
    "ImageFolder",
    "ImageGeneration",
    "ImageNet",
    "ImageSet",
    "ImageSource",
    "Photos",
    "Latents",
    "Rows",
    "StepOrder",
    "SuperResolution",
    "Task",
    "ValBatch",
    "to_float",
    "to_uint8",
]
