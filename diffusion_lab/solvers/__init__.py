"""Solvers: from noise to images."""

from diffusion_lab.solvers.base import Noise, Solver
from diffusion_lab.solvers.calls import network_calls
from diffusion_lab.solvers.ddim import DDIM
from diffusion_lab.solvers.ddpm import DDPM
from diffusion_lab.solvers.dpm_solver_pp import DPMSolverPP
from diffusion_lab.solvers.euler import Euler
from diffusion_lab.solvers.guided import Guided
from diffusion_lab.solvers.heun import Heun
from diffusion_lab.solvers.noise_level import NoiseLevelSolver, Step
from diffusion_lab.solvers.one_call import OneCall
from diffusion_lab.solvers.respacing import Steps, space_timesteps
from diffusion_lab.solvers.spacing import Spacing
from diffusion_lab.solvers.spacings import Karras, Listed, Trailing, Uniform
from diffusion_lab.solvers.unipc import UniPC

__all__ = [
    "DDIM",
    "DDPM",
    "DPMSolverPP",
    "Euler",
    "Guided",
    "Heun",
    "Karras",
    "Listed",
    "Noise",
    "NoiseLevelSolver",
    "OneCall",
    "Solver",
    "Spacing",
    "Step",
    "Steps",
    "Trailing",
    "UniPC",
    "Uniform",
    "network_calls",
    "space_timesteps",
]
