"""The denoiser that a test's run left behind."""

from omegaconf import DictConfig

from diffusion_lab.cli.load import load_run
from diffusion_lab.diffusion import Denoiser


def averaged_denoiser(cfg: DictConfig) -> Denoiser:
    """With the weights of the run's first average."""
    return load_run(cfg.paths.run_dir).denoiser
