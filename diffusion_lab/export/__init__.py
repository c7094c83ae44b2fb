"""Trained models as files for other programs, each with a model card."""

from diffusion_lab.export.card import card
from diffusion_lab.export.diffusers_folder import DiffusersFolder
from diffusion_lab.export.form import Form
from diffusion_lab.export.tensors import Pickled, Safetensors, TensorFile

__all__ = ["DiffusersFolder", "Form", "Pickled", "Safetensors", "TensorFile", "card"]
