"""Solvers: from noise to images."""

from diffusion_lab.solvers.base import Noise, Solver
from diffusion_lab.solvers.ddim import DDIM
from diffusion_lab.solvers.ddpm import DDPM
from diffusion_lab.solvers.guided import Guided
from diffusion_lab.solvers.heun import Heun
from diffusion_lab.solvers.one_call import OneCall
from diffusion_lab.solvers.respacing import space_timesteps

__all__ = ["DDIM", "DDPM", "Guided", "Heun", "Noise", "OneCall", "Solver", "space_timesteps"]
