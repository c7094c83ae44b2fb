"""The callbacks of a method: its timestep sampler, the normalisation of its weights, its annealing.

The sampler's `draw` is called before the loss, its `observe` after the update.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor

from diffusion_lab.annealing import Annealing
from diffusion_lab.arguments import check_integer
from diffusion_lab.callbacks.base import RunCallback, StepCallback, find
from diffusion_lab.data import ImageDataModule
from diffusion_lab.distributed import broadcast_
from diffusion_lab.failure import WrongResult
from diffusion_lab.optimizers import set_betas
from diffusion_lab.timesteps import Context, Draw, StepRecord, TimestepSampler, Uniform
from diffusion_lab.timesteps.base import check_sampler
from diffusion_lab.training import DenoiserProbe, DiffusionModule


class TimestepSampling(StepCallback):
    """Sets the module's `draw_timesteps` to the sampler's, and calls the sampler's `observe` after every update.

    The shape of the images is that of the trainer's `ImageDataModule`; with a loader of one's own it is known at the
    first draw, where a sampler that depends on it is built and its saved state is loaded.

    Args:
        sampler: the timestep sampler; its state is saved in the checkpoint under its class's name.
    """

    drives = DiffusionModule

    def __init__(self, sampler: TimestepSampler) -> None:
        self.sampler = check_sampler("sampler", sampler)
        self._built = False
        self._saved: dict[str, Any] | None = None  # the state to load once the sampler is built

    @property
    def state_key(self) -> str:
        return f"TimestepSampling/{type(self.sampler).__name__}"

    @property
    def may_be_infinite(self) -> tuple[str, ...]:
        return self.sampler.may_be_infinite

    def state_dict(self) -> dict[str, Any]:
        return dict(self.sampler.state_dict()) if self._saved is None else self._saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._built:
            self.sampler.load_state_dict(state_dict)
        else:
            self._saved = state_dict

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # Before Lightning restores the state, which may include a network that is only built here.
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, ImageDataModule):
            self._build(data.shape)

    def _build(self, image_shape: tuple[int, ...]) -> None:
        if not self._built:
            self.sampler.setup(image_shape)
            self._built = True
        if self._saved is not None:
            saved, self._saved = self._saved, None
            self.sampler.load_state_dict(saved)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, DiffusionModule), "TimestepSampling drives a DiffusionModule"
        steps = pl_module.denoiser.num_timesteps
        if self.sampler.num_timesteps != steps:
            raise ValueError(
                f"num_timesteps={self.sampler.num_timesteps} must equal the noise schedule's {steps}; give the sampler "
                f"num_timesteps={steps}, in a yaml file ${{schedule.num_timesteps}}"
            )
        self._trainer, self._module = trainer, pl_module
        data = getattr(trainer, "datamodule", None)
        if isinstance(data, ImageDataModule):
            self._start(data.batch_size // (trainer.world_size * trainer.accumulate_grad_batches))
        else:
            pl_module.draw_timesteps = self._first_draw

    def _start(self, rows: int) -> None:
        """From now on draw from the sampler.

        Args:
            rows: of one microbatch on one process. Probes use twice as many rows per call. Without gradients that needs
                at most half the memory of the training pass, or about as much with `checkpointing`, so a probe fits if
                a batch fits, which a fixed number of rows need not. With batches of 16 and 128 it is also close to the
                fastest size per row on a CPU: larger calls exceed its caches.
        """
        module = self._module
        self.sampler.to(module.device)
        for tensor in (*self.sampler.parameters(), *self.sampler.buffers()):
            broadcast_(tensor.data)
        precision = self._trainer.strategy.precision_plugin.forward_context
        self._probe = DenoiserProbe(module.denoiser, module.streams, precision, 2 * rows)
        module.draw_timesteps = self._draw

    def prepare(self, batch: Any) -> None:
        """Build the sampler for whoever asks for its distribution before the first draw of a batch; else a no-op."""
        if self._module.draw_timesteps == self._first_draw:
            images = self._module.read(batch)["image"]
            self._build(tuple(images.shape[1:]))
            self._start(len(images))

    def _first_draw(self, x0: Tensor, cond: dict[str, Tensor]) -> Draw:
        self._build(tuple(x0.shape[1:]))
        self._start(len(x0))
        return self._draw(x0, cond)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        cast(DiffusionModule, pl_module).use_uniform_timesteps()

    def _draw(self, x0: Tensor, cond: dict[str, Tensor]) -> Draw:
        drawn = self.sampler.draw(x0, self._module.context(x0, cond, self._probe))
        rows = (len(x0),)  # shapes alone, which are known without waiting for the device
        if not isinstance(drawn, Draw) or drawn.t.shape != rows or drawn.weight.shape != rows:
            given = drawn if not isinstance(drawn, Draw) else drawn.weight if drawn.t.shape == rows else drawn.t
            raise WrongResult.of(self.sampler, "draw", f"Draw(t, weight) with two tensors of shape {rows}", given)
        return drawn

    def on_step_end(self, trainer: Trainer, module: DiffusionModule, step: int, records: list[StepRecord]) -> None:
        if (
            type(self.sampler).observe is TimestepSampler.observe
        ):  # nothing to observe, and joining would copy the images
            return
        record = StepRecord.join(records)
        position = self._module.position._replace(step=step - 1, micro=0)
        context = Context(position, self._module.streams, record.x0.device, self._probe, record.cond)
        self.sampler.observe(record, context)


def sampler_of(trainer: Trainer, snr: Tensor) -> TimestepSampler:
    """The trainer's timestep sampler, or a uniform one if it has none; snr (T,) is the schedule's."""
    sampling = find(trainer, TimestepSampling)
    return Uniform(len(snr)).to(snr.device) if sampling is None else sampling.sampler


class WeightNormalization(RunCallback):
    """Calls `Weighting.refresh` before updates 0, every, 2 every, ...; a no-op for a weighting with normalize=none.

    The normalisation is computed from all T timesteps, so not in every step; it is a buffer in the checkpoint, so a
    resumed run continues with the same value.

    Args:
        every: optimizer steps between two refreshes, >= 1.
    """

    drives = DiffusionModule

    def __init__(self, every: int = 100) -> None:
        check_integer("every", every, 1, "use 100 optimizer steps")
        self.every = every

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._refreshed = -1

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: dict[str, Tensor], batch_idx: Any
    ) -> None:
        step = trainer.global_step
        if step % self.every or step == self._refreshed:
            return
        self._refreshed = step
        module = cast(DiffusionModule, pl_module)
        if module.weighting.normalize == "none":
            return
        snr = module.denoiser.schedule.snr
        if sampling := find(trainer, TimestepSampling):
            sampling.prepare(batch)
        sampler = sampler_of(trainer, snr)
        # With reweight a draw has the weight 1/(T p), so the effective distribution is uniform.
        effective = sampler.probabilities(step) * sampler.weight(torch.arange(len(snr), device=snr.device), step)
        module.weighting.refresh(snr, module.denoiser.native_scale(), effective, step)


class AnnealingCallback(RunCallback):
    """Before each update: lr = initial lr * factor(step), betas = (beta1(step), beta2(step)); momentum = beta1(step)
    in a group without betas, which is Muon's.

    It replaces Lightning's schedulers. The values are pure functions of the step, so nothing is saved.

    Args:
        annealing: step -> Hyper.
    """

    def __init__(self, annealing: Annealing) -> None:
        self.annealing = annealing

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
        self._set = -1

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: dict[str, Tensor], batch_idx: Any
    ) -> None:
        step = trainer.global_step
        if step == self._set:
            return
        self._set = step
        factor, beta1, beta2 = self.annealing(step)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor
                set_betas(group, beta1, beta2)
