"""Images to train on and to compare with."""

from diffusion_lab.data.celeba import CelebA
from diffusion_lab.data.celebahq import CelebAHQ
from diffusion_lab.data.cifar10 import CIFAR10
from diffusion_lab.data.digits import Digits
from diffusion_lab.data.fashion_mnist import FashionMNIST
from diffusion_lab.data.gaussian import GaussianMixture
from diffusion_lab.data.hugging_face import HuggingFace
from diffusion_lab.data.image_folder import ImageFolder
from diffusion_lab.data.imagenet import ImageNet
from diffusion_lab.data.images import ImageDataModule, ValBatch
from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.photos import Photos
from diffusion_lab.data.pixels import to_float, to_uint8
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource

__all__ = [
    "CIFAR10",
    "ArrayImages",
    "CelebA",
    "CelebAHQ",
    "Digits",
    "FashionMNIST",
    "GaussianMixture",
    "HuggingFace",
    "ImageDataModule",
    "ImageFolder",
    "ImageNet",
    "ImageSet",
    "ImageSource",
    "Photos",
    "Rows",
    "StepOrder",
    "ValBatch",
    "to_float",
    "to_uint8",
]
