"""Training: kinds of models, their LightningModules, the loss probe, checkpoints that resume exactly, validation."""

from diffusion_lab.training.adversarial import AdversarialModel, AdversarialModule, AdversarialRecord, TrainedGAN
from diffusion_lab.training.checkpoint_io import (
    DamagedCheckpoint,
    NewerCheckpoint,
    NoneIntact,
    VerifiedCheckpointIO,
    newest_good,
)
from diffusion_lab.training.continuation import Continuation
from diffusion_lab.training.finite import NotFinite, not_finite
from diffusion_lab.training.forcing import Forcing
from diffusion_lab.training.mean_flow import Intervals, MeanFlow, MeanFlowModule
from diffusion_lab.training.model_kind import DiffusionModel, ModelKind
from diffusion_lab.training.module import DiffusionModule, Losses, Pairs
from diffusion_lab.training.own_loop import LoopSampler
from diffusion_lab.training.probe import DenoiserProbe
from diffusion_lab.training.run_module import RunModule
from diffusion_lab.training.self_conditioning import (
    SelfConditionedDenoiser,
    SelfConditionedModel,
    SelfConditionedModule,
)
from diffusion_lab.training.sharded import ShardedStrategy
from diffusion_lab.training.trained_model import FixedSetLoss, TrainedDiffusion, TrainedModel, labels
from diffusion_lab.training.validation_loss import validation_losses

__all__ = [
    "AdversarialModel", "AdversarialModule", "AdversarialRecord", "Continuation", "DamagedCheckpoint", "DenoiserProbe",
    "DiffusionModel", "DiffusionModule", "LoopSampler", "ModelKind", "NewerCheckpoint", "NoneIntact", "NotFinite",
    "FixedSetLoss", "Forcing", "Intervals", "Losses", "MeanFlow", "MeanFlowModule", "Pairs", "RunModule",
    "SelfConditionedDenoiser", "SelfConditionedModel", "SelfConditionedModule", "ShardedStrategy", "TrainedDiffusion",
    "TrainedGAN", "TrainedModel", "VerifiedCheckpointIO", "labels", "newest_good", "not_finite", "validation_losses",
]  # fmt: skip
