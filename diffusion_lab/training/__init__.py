"""Training: the LightningModule, the loss probe, checkpoints that resume exactly, and the validation loss."""

from diffusion_lab.training.checkpoint_io import (
    DamagedCheckpoint,
    NewerCheckpoint,
    NoneIntact,
    VerifiedCheckpointIO,
    newest_good,
)
from diffusion_lab.training.continuation import Continuation
from diffusion_lab.training.finite import NotFinite, not_finite
from diffusion_lab.training.module import DiffusionModule
from diffusion_lab.training.objective import Objective
from diffusion_lab.training.probe import DenoiserProbe
from diffusion_lab.training.sharded import ShardedStrategy
from diffusion_lab.training.trained import Trained, TrainedModel, labels
from diffusion_lab.training.validation_loss import validation_losses

__all__ = [
    "Continuation",
    "DamagedCheckpoint",
    "DenoiserProbe",
    "DiffusionModule",
    "NewerCheckpoint",
    "NoneIntact",
    "NotFinite",
    "Objective",
    "ShardedStrategy",
    "Trained",
    "TrainedModel",
    "VerifiedCheckpointIO",
    "labels",
    "newest_good",
    "not_finite",
    "validation_losses",
]
