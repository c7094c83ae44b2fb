"""Callbacks around a training step. Their order is given by conf/callbacks/default.yaml alone."""

from diffusion_lab.callbacks.adversarial_log import AdversarialLog
from diffusion_lab.callbacks.annealing import AnnealingCallback
from diffusion_lab.callbacks.checkpoint import Checkpoint
from diffusion_lab.callbacks.ema import EMA
from diffusion_lab.callbacks.evaluation_callback import EvaluationCallback
from diffusion_lab.callbacks.generation import Generation
from diffusion_lab.callbacks.guard import Guard, NotFinite
from diffusion_lab.callbacks.head_tracking import HeadTracking
from diffusion_lab.callbacks.heartbeat import Heartbeat
from diffusion_lab.callbacks.median_stop import MedianStop, Pruned
from diffusion_lab.callbacks.progress import Progress
from diffusion_lab.callbacks.run_record import RunRecord
from diffusion_lab.callbacks.signals import Interrupted
from diffusion_lab.callbacks.timestep_log import TimestepLog
from diffusion_lab.callbacks.timestep_sampling import TimestepSampling
from diffusion_lab.callbacks.validation import Validation
from diffusion_lab.callbacks.weight_normalization import WeightNormalization

__all__ = [
    "EMA",
    "AdversarialLog",
    "AnnealingCallback",
    "Checkpoint",
    "EvaluationCallback",
    "Generation",
    "Guard",
    "HeadTracking",
    "Heartbeat",
    "Interrupted",
    "MedianStop",
    "NotFinite",
    "Progress",
    "Pruned",
    "RunRecord",
    "TimestepLog",
    "TimestepSampling",
    "Validation",
    "WeightNormalization",
]
