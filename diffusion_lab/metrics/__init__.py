"""Quality of samples: features, fidelity metrics, evaluation of a model, intervals over seeds, loss per timestep."""

from diffusion_lab.metrics.evaluation import Evaluated, Evaluation, Result
from diffusion_lab.metrics.features import ClassifierFeatures, FeatureExtractor, Features, extract
from diffusion_lab.metrics.fidelity import (
    PrecisionRecall,
    frechet_distance,
    frechet_from_statistics,
    inception_score,
    kernel_distance,
    precision_recall,
    statistics,
)
from diffusion_lab.metrics.generation import SampleNoise, generate, generate_batches
from diffusion_lab.metrics.inception import InceptionFeatures
from diffusion_lab.metrics.measures import METRICS, Summary, evaluate_images, measure, metric_names
from diffusion_lab.metrics.moments import Moments, ScoreSums, Statistics
from diffusion_lab.metrics.pictures import grid, save_grid
from diffusion_lab.metrics.reference import Reference, reference_statistics
from diffusion_lab.metrics.timestep_mean import TimestepMean, Totals
from diffusion_lab.metrics.uncertainty import (
    Interval,
    holm,
    mean_interval,
    paired_difference,
    seeds_needed,
    student_quantile,
    width_ratio,
)

__all__ = [
    "METRICS",
    "ClassifierFeatures",
    "Evaluated",
    "Evaluation",
    "FeatureExtractor",
    "Features",
    "InceptionFeatures",
    "Interval",
    "Moments",
    "PrecisionRecall",
    "Reference",
    "Result",
    "SampleNoise",
    "ScoreSums",
    "Statistics",
    "Summary",
    "TimestepMean",
    "Totals",
    "evaluate_images",
    "extract",
    "frechet_distance",
    "frechet_from_statistics",
    "generate",
    "generate_batches",
    "grid",
    "holm",
    "inception_score",
    "kernel_distance",
    "mean_interval",
    "measure",
    "metric_names",
    "paired_difference",
    "precision_recall",
    "reference_statistics",
    "save_grid",
    "seeds_needed",
    "statistics",
    "student_quantile",
    "width_ratio",
]
