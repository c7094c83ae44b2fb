"""Callbacks around a training step. Their order is given by conf/callbacks/default.yaml alone."""

from diffusion_lab.callbacks.checkpoint import Checkpoint
from diffusion_lab.callbacks.ema import EMA
from diffusion_lab.callbacks.evaluation import EvaluationCallback, Generation, Validation
from diffusion_lab.callbacks.guard import Guard, NotFinite
from diffusion_lab.callbacks.heartbeat import Heartbeat
from diffusion_lab.callbacks.median_stop import MedianStop, Pruned
from diffusion_lab.callbacks.method import AnnealingCallback, TimestepSampling, WeightNormalization
from diffusion_lab.callbacks.progress import Progress
from diffusion_lab.callbacks.run_record import RunRecord
from diffusion_lab.callbacks.signals import Interrupted
from diffusion_lab.callbacks.training_log import AdversarialLog, HeadTracking, TimestepLog

__all__ = [
    "AdversarialLog", "AnnealingCallback", "Checkpoint", "EMA", "EvaluationCallback", "Generation", "Guard",
    "HeadTracking", "Heartbeat", "Interrupted", "MedianStop", "NotFinite", "Progress", "Pruned", "RunRecord",
    "TimestepLog", "TimestepSampling", "Validation", "WeightNormalization",
]  # fmt: skip
