"""The maths of diffusion models. PyTorch only, and SciPy where it assigns noise to images."""

from diffusion_lab.diffusion.combined_prediction import CombinedPrediction
from diffusion_lab.diffusion.coupling import Coupling, Immiscible, MinibatchOT
from diffusion_lab.diffusion.denoiser import Denoiser, Loss, Reverse
from diffusion_lab.diffusion.floor import empirical_floor
from diffusion_lab.diffusion.generation_heads import (
    AverageHead,
    BestHead,
    GateHead,
    GenerationHead,
    LeastSquaresHead,
    SNRHead,
)
from diffusion_lab.diffusion.guidance import Guidance
from diffusion_lab.diffusion.head_errors import HEADS, HeadErrors
from diffusion_lab.diffusion.head_losses import (
    EpsSpace,
    Granularity,
    NativeSpace,
    PerBatch,
    PerBin,
    PerPixel,
    PerSample,
    Space,
    VSpace,
    X0Space,
)
from diffusion_lab.diffusion.head_reductions import HardMin, LearnedGate, MeanOfHeads, Reduction, SoftMin, WarmupMin
from diffusion_lab.diffusion.likelihood import Bound, bits_per_dim, bound_weights, prior_term, vlb_terms
from diffusion_lab.diffusion.mixed_prediction import MixedPrediction
from diffusion_lab.diffusion.network_time import LogNoise, NetworkTime, PathPosition, TimestepIndex
from diffusion_lab.diffusion.objective import native_scales, x0_weights
from diffusion_lab.diffusion.path import GaussianPath
from diffusion_lab.diffusion.paths import edm, rectified_flow
from diffusion_lab.diffusion.preconditioning import EDMScale, FDMScale, Plain, Preconditioning, PreservingScale
from diffusion_lab.diffusion.prediction import X0, Epsilon, Estimate, Parts, Prediction, V
from diffusion_lab.diffusion.schedule import NoiseSchedule, extract
from diffusion_lab.diffusion.schedules import cosine, damped, fdm, laplace, linear, quadratic, sigmoid, sqrt_linear
from diffusion_lab.diffusion.three_heads import ThreeHeads
from diffusion_lab.diffusion.uncertainty import Uncertainty
from diffusion_lab.diffusion.variance import FixedLarge, FixedSmall, LearnedRange, Variance
from diffusion_lab.diffusion.velocity import EDMPrediction, Velocity
from diffusion_lab.diffusion.weighting import Unit, Weighting
from diffusion_lab.diffusion.weightings import (
    EDM,
    P2,
    VLB,
    ConstantEps,
    ConstantV,
    ConstantX0,
    Debiased,
    FDMWarmup,
    MaxSNR,
    MinSNR,
    SoftMinSNR,
    TruncSNR,
)

__all__ = [
    "Coupling",
    "Immiscible",
    "MinibatchOT",
    "EDM",
    "HEADS",
    "P2",
    "VLB",
    "X0",
    "AverageHead",
    "BestHead",
    "Bound",
    "CombinedPrediction",
    "ConstantEps",
    "ConstantV",
    "ConstantX0",
    "Debiased",
    "Denoiser",
    "EpsSpace",
    "Epsilon",
    "Estimate",
    "FDMScale",
    "FDMWarmup",
    "FixedLarge",
    "FixedSmall",
    "GateHead",
    "GenerationHead",
    "Granularity",
    "Guidance",
    "HardMin",
    "HeadErrors",
    "LearnedGate",
    "LearnedRange",
    "LeastSquaresHead",
    "Loss",
    "MaxSNR",
    "MeanOfHeads",
    "MinSNR",
    "MixedPrediction",
    "NativeSpace",
    "NoiseSchedule",
    "Parts",
    "PerBatch",
    "PerBin",
    "PerPixel",
    "PerSample",
    "Plain",
    "Preconditioning",
    "Prediction",
    "Reduction",
    "Reverse",
    "SNRHead",
    "SoftMin",
    "SoftMinSNR",
    "Space",
    "ThreeHeads",
    "TruncSNR",
    "Uncertainty",
    "Unit",
    "V",
    "VSpace",
    "Variance",
    "WarmupMin",
    "Weighting",
    "X0Space",
    "bits_per_dim",
    "bound_weights",
    "cosine",
    "damped",
    "empirical_floor",
    "extract",
    "fdm",
    "laplace",
    "linear",
    "native_scales",
    "prior_term",
    "quadratic",
    "sigmoid",
    "sqrt_linear",
    "vlb_terms",
    "EDMPrediction",
    "EDMScale",
    "GaussianPath",
    "LogNoise",
    "NetworkTime",
    "PathPosition",
    "PreservingScale",
    "TimestepIndex",
    "Velocity",
    "edm",
    "rectified_flow",
    "x0_weights",
]
