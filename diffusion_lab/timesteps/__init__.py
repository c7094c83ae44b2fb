"""Timestep samplers: which timesteps a training step sees, and with which weight."""

from diffusion_lab.timesteps.base import (
    Context,
    Draw,
    FixedSampler,
    Position,
    Probe,
    StepRecord,
    TimestepSampler,
)
from diffusion_lab.timesteps.loss_aware import LossSecondMoment
from diffusion_lab.timesteps.static import LogitNormal, Uniform
from diffusion_lab.timesteps.stratified import Stratified

__all__ = [
    "Context",
    "Draw",
    "FixedSampler",
    "LogitNormal",
    "LossSecondMoment",
    "Position",
    "Probe",
    "StepRecord",
    "Stratified",
    "TimestepSampler",
    "Uniform",
]
