"""The denoiser that a test's run left behind, and the one that it began with."""

from omegaconf import DictConfig

from diffusion_lab.cli.build_model import build_model
from diffusion_lab.cli.load import load_run
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.diffusion import Denoiser


def averaged_denoiser(cfg: DictConfig) -> Denoiser:
    """With the weights of the run's first average."""
    return load_run(cfg.paths.run_dir).denoiser


def untrained_denoiser(cfg: DictConfig) -> Denoiser:
    """A control: the same parts with the weights of step 0."""
    whole = build_model(RunParts(cfg))
    assert isinstance(whole, Denoiser)
    return whole.eval()
