"""Every wait for the device that is allowed, by name, with its reason; docs/hardware.md shows this table.

Where nothing is listed the host runs ahead of the device. Nothing of this package waits in an ordinary step.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tests.cuda.paper import MASK, READ, SIZE, TO_DEVICE, TO_HOST, Wait

START, STEP, LOG, MEASURING = "start", "each step", "log", "measurement of a sampler"
EVALUATION, SAMPLING, CHECKPOINT = "evaluation", "sampling", "checkpoint"


class Allowed(NamedTuple):
    """A wait, when it takes place, and why that is right."""

    wait: Wait
    when: str
    reason: str


def _allowed(where: str, why: str, when: str, reason: str) -> Allowed:
    return Allowed(Wait(where, why), when, reason)


ALLOWED = [
    _allowed(
        "lightning/fabric/utilities/device_dtype_mixin.py:_DeviceDtypeModuleMixin.to", TO_DEVICE, START, "weights"
    ),
    _allowed("diffusion/denoiser.py:Denoiser._apply", TO_DEVICE, START, "weights and tables"),
    _allowed("diffusion/schedule.py:Tables._apply", TO_DEVICE, START, "tables of the schedule and the heads' errors"),
    _allowed("timesteps/learned_beta.py:LearnedBeta._apply", TO_DEVICE, START, "policy and tables"),
    _allowed("callbacks/method.py:TimestepSampling._start", TO_DEVICE, START, "tables of the sampler"),
    _allowed("callbacks/training_log.py:TimestepLog.on_fit_start", TO_DEVICE, START, "tables of the log"),
    _allowed("callbacks/training_log.py:timestep_axes", TO_HOST, START, "log SNR of the logged ranges"),
    _allowed("training/module.py:DiffusionModule.facts", TO_HOST, START, "log SNR for run.json"),
    _allowed("callbacks/training_log.py:AdversarialLog.on_fit_start", TO_DEVICE, START, "sums of the log of a GAN"),
    _allowed("callbacks/ema.py:EMA.on_fit_start", TO_DEVICE, START, "averages from a checkpoint"),
    _allowed(
        "torch/amp/grad_scaler.py:GradScaler._maybe_opt_step",
        READ,
        STEP,
        "float16 alone: whether a gradient overflowed decides about the step, in PyTorch",
    ),
    _allowed(
        "callbacks/guard.py:Guard.check",
        READ,
        LOG,
        "what is not finite, every `callbacks.guard.every` steps",
    ),
    _allowed("callbacks/guard.py:Guard.check", TO_HOST, LOG, "the same"),
    _allowed("callbacks/guard.py:Guard._sampler_is_finite", READ, LOG, "whether the sampler's state is finite"),
    _allowed(
        "callbacks/progress.py:shown_loss",
        READ,
        LOG,
        "the loss that is shown, every `callbacks.progress.every` seconds",
    ),
    _allowed("callbacks/training_log.py:AdversarialLog.on_step_end", TO_HOST, LOG, "means of a GAN's two losses"),
    _allowed("callbacks/training_log.py:TimestepLog._log", READ, LOG, "mean loss, mean norm of the gradient"),
    _allowed("callbacks/training_log.py:TimestepLog._log", TO_HOST, LOG, "tables by bin"),
    _allowed("callbacks/training_log.py:_binned", READ, LOG, "number of bins"),
    _allowed("callbacks/training_log.py:HeadTracking.on_step_end", TO_HOST, LOG, "tables of the heads"),
    _allowed(
        "timesteps/beta_policy.py:beta_masses", TO_HOST, LOG, "the distribution of learned_beta, which SciPy computes"
    ),
    _allowed("timesteps/beta_policy.py:beta_masses", TO_DEVICE, LOG, "the same"),
    _allowed(
        "timesteps/slots.py:EqualLossSlots.observe", TO_HOST, MEASURING, "the curve of the losses when the edges move"
    ),
    _allowed("timesteps/slots.py:EqualLossSlots.observe", TO_DEVICE, MEASURING, "the new edges"),
    _allowed("timesteps/slots.py:fill", SIZE, MEASURING, "which timesteps were seen"),
    _allowed(
        "timesteps/gradient_variance.py:GradientVariance.observe", READ, MEASURING, "whether the moments are finite"
    ),
    _allowed("timesteps/gradient_variance.py:GradientVariance.log_values", READ, LOG, "whether it has measured"),
    _allowed(
        "timesteps/gradient_variance.py:GradientVariance._distribution", READ, MEASURING, "whether there is a gradient"
    ),
    _allowed(
        "timesteps/learned_beta.py:LearnedBeta.observe", MASK, MEASURING, "pairs of the queue, at a policy update"
    ),
    _allowed("timesteps/learned_beta.py:LearnedBeta._learn", TO_DEVICE, MEASURING, "number of rewarded rows"),
    _allowed("timesteps/learned_beta.py:LearnedBeta._select", READ, MEASURING, "rows of the queue"),
    _allowed("callbacks/evaluation.py:Validation.measure", TO_DEVICE, EVALUATION, "validation images"),
    _allowed("training/validation_loss.py:validation_losses", TO_DEVICE, EVALUATION, "their timesteps and noise"),
    _allowed("callbacks/evaluation.py:Validation.evaluate", READ, EVALUATION, "the loss"),
    _allowed("callbacks/evaluation.py:Validation.evaluate", TO_HOST, EVALUATION, "the loss by bin"),
    _allowed(
        "metrics/features.py:FeatureExtractor._parts",
        TO_DEVICE,
        EVALUATION,
        "the extractor's weights, the first time",
    ),
    _allowed("metrics/features.py:features_of", TO_DEVICE, EVALUATION, "images"),
    _allowed("metrics/evaluation.py:_batch", TO_DEVICE, EVALUATION, "samples"),
    _allowed("metrics/copying.py:real_images", TO_DEVICE, EVALUATION, "real images that samples may copy"),
    _allowed("metrics/generated.py:Generated.update", TO_HOST, EVALUATION, "features of metrics that compare points"),
    _allowed("metrics/generated.py:Generated.across_ranks", TO_DEVICE, EVALUATION, "the same, for NCCL to gather"),
    _allowed("metrics/generated.py:Generated.across_ranks", TO_HOST, EVALUATION, "the same, gathered"),
    _allowed(
        "metrics/generated.py:Moments.statistics", READ, EVALUATION, "number of images, and whether features are finite"
    ),
    _allowed("metrics/generated.py:Moments.statistics", TO_HOST, EVALUATION, "mean and covariance"),
    _allowed("metrics/generated.py:ScoreSums.update", TO_DEVICE, EVALUATION, "which split an image is dealt to"),
    _allowed("metrics/generated.py:ScoreSums.score", READ, EVALUATION, "the score"),
    _allowed(
        "metrics/reference.py:reference_statistics",
        TO_HOST,
        EVALUATION,
        "features of the reference images, the first time",
    ),
    _allowed("metrics/sampling.py:generate_batches", TO_DEVICE, SAMPLING, "first noise and conditions of a batch"),
    _allowed("metrics/sampling.py:generate_batches", TO_HOST, SAMPLING, "finished images of a batch"),
    _allowed("metrics/sampling.py:check_finite", TO_HOST, SAMPLING, "whether they are finite"),
    _allowed(
        "diffusion/schedule.py:NoiseSchedule.respace",
        TO_HOST,
        SAMPLING,
        "solver=ddpm with fewer steps: its tables, once for a batch",
    ),
    _allowed("solvers/ancestral.py:DDIM.solve", TO_DEVICE, SAMPLING, "which timesteps a batch visits"),
    _allowed("solvers/ancestral.py:DDIM.solve", TO_HOST, SAMPLING, "their coefficients, once for a batch"),
    _allowed("solvers/noise_level.py:Heun.solve", TO_HOST, SAMPLING, "their noise levels, once for a batch"),
    _allowed("solvers/mean_flow.py:AverageVelocity.solve", TO_HOST, SAMPLING, "their positions, once for a batch"),
    _allowed("solvers/noise_level.py:estimator", TO_HOST, SAMPLING, "alpha of all timesteps, once for a batch"),
    _allowed(
        "solvers/noise_level.py:NoiseLevelSolver.solve", TO_HOST, SAMPLING, "their noise levels, once for a batch"
    ),
    _allowed("solvers/spacing.py:Uniform.indices", TO_HOST, SAMPLING, "which timesteps a batch visits, with a shift"),
    _allowed("solvers/spacing.py:Karras.with_repeats", TO_HOST, SAMPLING, "which timesteps a batch visits"),
    _allowed(
        "diffusion/denoiser.py:Denoiser.guided", TO_HOST, SAMPLING, "which timesteps are guided, with an interval"
    ),
    _allowed("diffusion/network_input.py:Guidance.forward", READ, SAMPLING, "whether a step is, with an interval"),
    _allowed("solvers/autoguided.py:_equal", TO_HOST, SAMPLING, "whether the weak model fits, once for a batch"),
    _allowed("training/finite.py:not_finite", TO_HOST, CHECKPOINT, "whether all that is saved is finite"),
    _allowed("training/checkpoint_io.py:save", TO_HOST, CHECKPOINT, "weights, averages and the optimizer's state"),
    _allowed("callbacks/checkpoint.py:Checkpoint._write", READ, CHECKPOINT, "float16 alone: the loss scaler's numbers"),
    _allowed("callbacks/training_log.py:AdversarialLog.state_dict", TO_HOST, CHECKPOINT, "sums of the log of a GAN"),
    _allowed("callbacks/training_log.py:TimestepLog.state_dict", TO_HOST, CHECKPOINT, "tables of the log"),
]
TABLE = {allowed.wait: allowed for allowed in ALLOWED}


def not_allowed(waits: Counter[Wait], when: str | None = None) -> dict[Wait, int]:
    """Those of `waits` that the table does not have, or not for this moment."""
    return {
        wait: count
        for wait, count in waits.items()
        if wait not in TABLE or (when is not None and TABLE[wait].when != when)
    }
