"""Timestep samplers: the timesteps of a training step and their weights in the loss."""

from diffusion_lab.streams import Position
from diffusion_lab.timesteps.base import Draw, FixedSampler, TimestepSampler
from diffusion_lab.timesteps.beta_policy import Rewards, ShuffledRewards, ZeroRewards, f_statistic
from diffusion_lab.timesteps.context import Context, Probe, StepRecord
from diffusion_lab.timesteps.continuous import (
    Beta,
    Cauchy,
    CosMap,
    Distribution,
    Laplace,
    LogSNR,
    Mode,
    Normal,
    Symmetric,
    masses,
    open_masses,
    position_masses,
)
from diffusion_lab.timesteps.curriculum import CLTS
from diffusion_lab.timesteps.gradient_variance import GradientVariance
from diffusion_lab.timesteps.infonoise import InfoNoise
from diffusion_lab.timesteps.learned_beta import LearnedBeta
from diffusion_lab.timesteps.loss_aware import LossSecondMoment
from diffusion_lab.timesteps.slots import EqualLossSlots, SlotRestricted, equal_sum_slots
from diffusion_lab.timesteps.speed import SpeeD
from diffusion_lab.timesteps.static import ByWeight, FromFile, LogitNormal, LogNormal, Power, Uniform
from diffusion_lab.timesteps.switch import Switch
from diffusion_lab.timesteps.wrappers import Antithetic, LowDiscrepancy, Mixture, Stratified

__all__ = [
    "Antithetic", "Beta", "ByWeight", "CLTS", "Cauchy", "Context", "CosMap", "Distribution", "Draw", "EqualLossSlots",
    "FixedSampler", "FromFile", "GradientVariance", "InfoNoise", "Laplace", "LearnedBeta", "LogNormal", "LogSNR",
    "LogitNormal", "LossSecondMoment", "LowDiscrepancy", "Mixture", "Mode", "Normal", "Position", "Power", "Probe",
    "Rewards", "ShuffledRewards", "SlotRestricted", "SpeeD", "StepRecord", "Stratified", "Switch", "Symmetric",
    "TimestepSampler", "Uniform", "ZeroRewards", "equal_sum_slots", "f_statistic", "masses", "open_masses",
    "position_masses",
]  # fmt: skip
