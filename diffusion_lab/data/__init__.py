"""Data sets, the data module, and the conditions of the network."""

from diffusion_lab.data.conditions import Conditions, ImageGeneration, SuperResolution, Task
from diffusion_lab.data.datamodule import ImageDataModule
from diffusion_lab.data.image_order import Curriculum, ImageOrder
from diffusion_lab.data.latent.autoencoder import Autoencoder
from diffusion_lab.data.latent.encoding import Encoding
from diffusion_lab.data.latent.latents import Latents
from diffusion_lab.data.loading import ValBatch
from diffusion_lab.data.order import Rows, StepOrder
from diffusion_lab.data.pixels import to_float, to_uint8
from diffusion_lab.data.source import ArrayImages, ImageSet, ImageSource
from diffusion_lab.data.sources.bundled import Digits, Photos
from diffusion_lab.data.sources.celeba import CelebA, CelebAHQ
from diffusion_lab.data.sources.cifar10 import CIFAR10
from diffusion_lab.data.sources.fashion_mnist import FashionMNIST
from diffusion_lab.data.sources.gaussian import GaussianMixture
from diffusion_lab.data.sources.hugging_face import HuggingFace
from diffusion_lab.data.sources.image_folder import ImageFolder
from diffusion_lab.data.sources.imagenet import ImageNet
from diffusion_lab.data.sources.zip_folder import ZipFolder
from diffusion_lab.runs.data_record import DataRecord

__all__ = [
    "ArrayImages", "Autoencoder", "CIFAR10", "CelebA", "CelebAHQ", "Conditions", "Curriculum", "DataRecord", "Digits",
    "Encoding", "FashionMNIST", "GaussianMixture", "HuggingFace", "ImageDataModule", "ImageFolder", "ImageGeneration",
    "ImageNet", "ImageOrder", "ImageSet", "ImageSource", "Latents", "Photos", "Rows", "StepOrder", "SuperResolution",
    "Task", "ValBatch", "ZipFolder", "to_float", "to_uint8",
]  # fmt: skip
