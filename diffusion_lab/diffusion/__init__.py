"""The maths of diffusion models. PyTorch only, and SciPy where it assigns noise to images."""

from diffusion_lab.diffusion.coupling import (
    Coupling,
    Immiscible,
    InputPerturbation,
    MinibatchOT,
    Offset,
    TrainingNoise,
)
from diffusion_lab.diffusion.denoiser import Denoiser, Loss, Reverse
from diffusion_lab.diffusion.generation_heads import (
    AverageHead,
    BestHead,
    GateHead,
    GenerationHead,
    LeastSquaresHead,
    SNRHead,
)
from diffusion_lab.diffusion.head_errors import HEADS, HeadErrors
from diffusion_lab.diffusion.head_gates import (
    EpsSpace,
    Granularity,
    HardMin,
    LearnedGate,
    MeanOfHeads,
    NativeSpace,
    PerBatch,
    PerBin,
    PerPixel,
    PerSample,
    Reduction,
    SoftMin,
    Space,
    VSpace,
    WarmupMin,
    X0Space,
)
from diffusion_lab.diffusion.likelihood import (
    Bound,
    EmpiricalFloor,
    bits_per_dim,
    bound_weights,
    empirical_floor,
    prior_term,
    vlb_terms,
)
from diffusion_lab.diffusion.mixed_prediction import CombinedPrediction, MixedPrediction, ThreeHeads
from diffusion_lab.diffusion.network_input import (
    EDMScale,
    FDMScale,
    Guidance,
    LogNoise,
    NetworkTime,
    PathPosition,
    Plain,
    Preconditioning,
    PreservingScale,
    TimestepIndex,
)
from diffusion_lab.diffusion.path import GaussianPath, edm, rectified_flow
from diffusion_lab.diffusion.prediction import X0, EDMPrediction, Epsilon, Estimate, LossParts, Prediction, V, Velocity
from diffusion_lab.diffusion.row_losses import Adaptive, PseudoHuber, RowLoss
from diffusion_lab.diffusion.schedule import NoiseSchedule, extract
from diffusion_lab.diffusion.schedules import cosine, damped, fdm, laplace, linear, quadratic, sigmoid, sqrt_linear
from diffusion_lab.diffusion.step import Step
from diffusion_lab.diffusion.variance import FixedLarge, FixedSmall, LearnedRange, Variance
from diffusion_lab.diffusion.weighting import Uncertainty, Unit, Weighting, native_scales, x0_weights
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
    "Adaptive", "AverageHead", "BestHead", "Bound", "CombinedPrediction", "ConstantEps", "ConstantV", "ConstantX0",
    "Coupling", "Debiased", "Denoiser", "EDM", "EDMPrediction", "EDMScale", "EmpiricalFloor", "EpsSpace", "Epsilon",
    "Estimate", "FDMScale", "FDMWarmup", "FixedLarge", "FixedSmall", "GateHead", "GaussianPath", "GenerationHead",
    "Granularity", "Guidance", "HEADS", "HardMin", "HeadErrors", "Immiscible", "InputPerturbation", "LearnedGate",
    "LearnedRange", "LeastSquaresHead", "LogNoise", "Loss", "LossParts", "MaxSNR", "MeanOfHeads", "MinSNR",
    "MinibatchOT", "MixedPrediction", "NativeSpace", "NetworkTime", "NoiseSchedule", "Offset", "P2", "PathPosition",
    "PerBatch", "PerBin", "PerPixel", "PerSample", "Plain", "Preconditioning", "Prediction", "PreservingScale",
    "PseudoHuber", "Reduction", "Reverse", "RowLoss", "SNRHead", "SoftMin", "SoftMinSNR", "Space", "Step",
    "ThreeHeads", "TimestepIndex", "TrainingNoise", "TruncSNR", "Uncertainty", "Unit", "V", "VLB", "VSpace",
    "Variance", "Velocity", "WarmupMin", "Weighting", "X0", "X0Space", "bits_per_dim", "bound_weights", "cosine",
    "damped", "edm", "empirical_floor", "extract", "fdm", "laplace", "linear", "native_scales", "prior_term",
    "quadratic", "rectified_flow", "sigmoid", "sqrt_linear", "vlb_terms", "x0_weights",
]  # fmt: skip
