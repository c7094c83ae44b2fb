"""Metrics of samples and models: features, the evaluation of a model, intervals over seeds, means per timestep."""

from diffusion_lab.intervals import Interval, holm, mean_interval, paired_difference, student_quantile
from diffusion_lab.metrics.bits_per_dim import BitsPerDim
from diffusion_lab.metrics.copying import Copying
from diffusion_lab.metrics.dinov2 import DINOv2Features
from diffusion_lab.metrics.evaluation import Evaluated, Evaluation
from diffusion_lab.metrics.excess_loss import ExcessLoss
from diffusion_lab.metrics.features import ClassifierFeatures, FeatureExtractor, Features, extract
from diffusion_lab.metrics.fidelity import (
    FrechetDistance,
    InceptionScore,
    KernelDistance,
    Precision,
    PrecisionRecall,
    Recall,
    frechet_distance,
    frechet_from_statistics,
    inception_score,
    kernel_distance,
    precision_recall,
    statistics,
)
from diffusion_lab.metrics.generated import Batch, Generated, Moments, ScoreSums, Statistics
from diffusion_lab.metrics.held_out import HeldOutFrechetDistance
from diffusion_lab.metrics.image_sets import evaluate_images
from diffusion_lab.metrics.inception import InceptionFeatures
from diffusion_lab.metrics.metric import Given, Metric, Model, SampleMetric
from diffusion_lab.metrics.own_features import OwnFeatures
from diffusion_lab.metrics.pictures import grid, save_grid
from diffusion_lab.metrics.reference import Reference, reference_statistics
from diffusion_lab.metrics.result import MetricResult, over_seeds
from diffusion_lab.metrics.sample_metrics import PSNR, Agreement, HueError, SampleVariance
from diffusion_lab.metrics.sampling import Latents, SampleNoise, generate, generate_batches
from diffusion_lab.metrics.timestep_mean import TimestepMean, Totals

__all__ = [
    "Agreement", "Batch", "BitsPerDim", "ClassifierFeatures", "Copying", "DINOv2Features", "Evaluated", "Evaluation",
    "ExcessLoss", "FeatureExtractor", "Features", "FrechetDistance", "Generated", "Given", "HeldOutFrechetDistance",
    "HueError", "InceptionFeatures", "InceptionScore", "Interval", "KernelDistance", "Latents", "Metric",
    "MetricResult", "Model", "Moments", "OwnFeatures", "PSNR", "Precision", "PrecisionRecall", "Recall", "Reference",
    "SampleMetric", "SampleNoise", "SampleVariance", "ScoreSums", "Statistics", "TimestepMean", "Totals",
    "evaluate_images", "extract", "frechet_distance", "frechet_from_statistics", "generate", "generate_batches",
    "grid", "holm", "inception_score", "kernel_distance", "mean_interval", "over_seeds", "paired_difference",
    "precision_recall", "reference_statistics", "save_grid", "statistics", "student_quantile",
]  # fmt: skip
