"""Timestep samplers: the timesteps of a training step and their weights in the loss."""

from diffusion_lab.timesteps.base import Draw, FixedSampler, TimestepSampler
from diffusion_lab.timesteps.context import Context, Position, Probe, StepRecord
from diffusion_lab.timesteps.curriculum import CLTS
from diffusion_lab.timesteps.from_file import FromFile
from diffusion_lab.timesteps.gradient_variance import GradientVariance
from diffusion_lab.timesteps.infonoise import InfoNoise
from diffusion_lab.timesteps.learned_beta import LearnedBeta
from diffusion_lab.timesteps.log_snr import Cauchy, Distribution, Laplace, LogSNR, Normal, Symmetric
from diffusion_lab.timesteps.loss_aware import LossSecondMoment
from diffusion_lab.timesteps.masses import masses, open_masses, position_masses
from diffusion_lab.timesteps.mixture import Mixture
from diffusion_lab.timesteps.position import Beta, CosMap, Mode
from diffusion_lab.timesteps.rewards import Rewards, ShuffledRewards, ZeroRewards
from diffusion_lab.timesteps.slots import EqualLossSlots, SlotRestricted, equal_sum_slots
from diffusion_lab.timesteps.speed import SpeeD
from diffusion_lab.timesteps.static import LogitNormal, LogNormal, Power, Uniform
from diffusion_lab.timesteps.stratified import Antithetic, LowDiscrepancy, Stratified
from diffusion_lab.timesteps.timestep_selection import f_statistic

__all__ = [
    "InfoNoise",
    "Cauchy",
    "Distribution",
    "Laplace",
    "LogSNR",
    "Normal",
    "Symmetric",
    "Beta",
    "CosMap",
    "Mode",
    "masses",
    "open_masses",
    "position_masses",
    "CLTS",
    "Antithetic",
    "Context",
    "Draw",
    "EqualLossSlots",
    "FixedSampler",
    "FromFile",
    "GradientVariance",
    "LearnedBeta",
    "LogNormal",
    "LogitNormal",
    "LossSecondMoment",
    "LowDiscrepancy",
    "Mixture",
    "Position",
    "Power",
    "Probe",
    "Rewards",
    "ShuffledRewards",
    "SlotRestricted",
    "SpeeD",
    "StepRecord",
    "Stratified",
    "TimestepSampler",
    "Uniform",
    "ZeroRewards",
    "equal_sum_slots",
    "f_statistic",
]
