"""Solvers: from noise to images."""

from diffusion_lab.solvers.ancestral import DDIM, DDPM
from diffusion_lab.solvers.autoguided import Autoguided
from diffusion_lab.solvers.base import Around, Noise, OneCall, Solver, network_calls
from diffusion_lab.solvers.guided import Guided
from diffusion_lab.solvers.mean_flow import AverageVelocity
from diffusion_lab.solvers.multistep import DPMSolverPP, UniPC
from diffusion_lab.solvers.noise_level import Euler, Heun, NoiseLevelSolver, Step
from diffusion_lab.solvers.spacing import Karras, Listed, Spacing, Steps, Trailing, Uniform, space_timesteps

__all__ = [
    "Around", "Autoguided", "AverageVelocity", "DDIM", "DDPM", "DPMSolverPP", "Euler", "Guided", "Heun", "Karras",
    "Listed", "Noise", "NoiseLevelSolver", "OneCall", "Solver", "Spacing", "Step", "Steps", "Trailing", "Uniform",
    "UniPC", "network_calls", "space_timesteps",
]  # fmt: skip
