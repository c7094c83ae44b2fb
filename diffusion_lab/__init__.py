"""Training of diffusion models in which the distribution of the timesteps is a part that one exchanges."""

__version__ = "0.1.0"
