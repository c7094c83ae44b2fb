"""The LightningModule: one training step of a diffusion model, and the position that determines its randomness."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser, Weighting
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Draw, Position, StepRecord, Uniform
from diffusion_lab.training.finite import NotFinite, not_finite

DrawTimesteps = Callable[[Tensor, dict[str, Tensor]], Draw]
AfterStep = Callable[[int, list[StepRecord]], object]


class DiffusionModule(LightningModule):
    """Loss of one batch at sampled timesteps.

        t, w ~ sampler,   eps ~ N(0, I),   l_i = |target - network(x_t, t)|^2 / (C H W)
        loss = mean_i  w_i (weighting(l_i) + variance term_i)

    Timesteps come from the attribute `draw_timesteps`, which is uniform until a callback replaces it, so the module
    trains and loads without any callback.

    Args:
        denoiser: network, noise schedule, prediction and reverse variance.
        weighting: weight of each row's native loss.
        optimizer: parameters -> optimizer.
        streams: the run's random numbers.
    """

    denoiser: Denoiser
    weighting: Weighting
    draw_timesteps: DrawTimesteps

    # Lightning calls these in every step unless they are None.
    on_train_batch_start: Any = None
    on_before_zero_grad: Any = None
    on_before_backward: Any = None
    on_after_backward: Any = None
    on_before_optimizer_step: Any = None

    def __init__(
        self,
        denoiser: Denoiser,
        weighting: Weighting,
        optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
        streams: Streams,
    ) -> None:
        super().__init__()
        self.denoiser = denoiser
        self.weighting = weighting
        self.make_optimizer = optimizer
        self.streams = streams
        self._uniform = [Uniform(denoiser.num_timesteps)]  # in a list, so that it is not registered as a submodule
        self.use_uniform_timesteps()
        self.after_step: list[AfterStep] = []  # called in this order after each optimizer step
        self._position = Position(-1)
        self._records: list[StepRecord] = []
        self.gradient_norm: Tensor | None = None  # of the last update, before clipping; None without clipping

    def use_uniform_timesteps(self) -> None:
        """Draw t uniformly, as without a sampler."""
        self.draw_timesteps = lambda x0, cond: self._uniform[0].to(x0.device).draw(x0, self.context(x0, cond))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make_optimizer(self.parameters())

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Scale the gradient to a norm of at most `gradient_clip_val`.

        Lightning refuses this for a fused optimizer in mixed precision, because it unscales float16 gradients itself;
        bfloat16 gradients are not scaled, so clipping them is correct.
        """
        by_norm = gradient_clip_algorithm in (None, "norm")
        if by_norm and gradient_clip_val and getattr(self.trainer.precision_plugin, "scaler", None) is None:
            # From the optimizer: iterating over all modules takes as long as scaling a small network's gradient.
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            self.gradient_norm = nn.utils.clip_grad_norm_(parameters, gradient_clip_val)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    # -- position -----------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Step, process and microbatch of the current training step."""
        return self._position

    def context(self, x0: Tensor, cond: dict[str, Tensor], probe: Any = None) -> Context:
        """What a sampler is given for these rows."""
        return Context(self.position, self.streams, x0.device, probe, cond)

    def on_fit_start(self) -> None:
        self.after_step, self._records = [], []

    def on_train_start(self) -> None:
        trainer = self.trainer
        self._position = Position(
            -1, trainer.global_rank, trainer.world_size, accumulate=trainer.accumulate_grad_batches
        )
        if self.device.type == "cpu":
            # An optimizer checks for a GPU in every step, and with Lightning's setting of this variable the check opens
            # NVIDIA's library, which takes 0.1 to 0.4 ms without a GPU.
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
        for optimizer in trainer.optimizers:
            match_layout(optimizer)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Convert the saved count of microbatches to the present `accumulate_grad_batches`, which may have changed.

        Lightning steps the optimizer when its count of microbatches is a multiple of that number.
        """
        if self._trainer is None:
            return
        done = checkpoint["global_step"] * self.trainer.accumulate_grad_batches
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["total"], progress["current"]):
            growth = done - counts["ready"]
            counts.update({key: value + growth for key, value in counts.items()})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse to save a state from which training could not continue.

        Checks the weights, the optimizer's state and the state of callbacks with the attribute `may_be_infinite`, the
        names of entries that may hold NaN and infinities.

        Raises:
            NotFinite: an entry is not finite; on all processes, with the name of the first.
        """
        parts: dict[str, Any] = {"state_dict": checkpoint["state_dict"]}
        parts["optimizer_states"] = [optimizer["state"] for optimizer in checkpoint.get("optimizer_states", [])]
        allowed: set[str] = set()
        callbacks: list[Any] = [] if self._trainer is None else attrgetter("callbacks")(self.trainer)
        for callback in callbacks:
            if hasattr(callback, "may_be_infinite"):
                allowed |= set(callback.may_be_infinite)
                parts[callback.state_key] = checkpoint.get("callbacks", {}).get(callback.state_key, {})
        if name := not_finite(parts, allowed):
            raise NotFinite(
                f"{name} is not finite after optimizer step {checkpoint['global_step']}, so its checkpoint was not "
                "written; earlier checkpoints are from before it"
            )
        checkpoint["may_be_infinite"] = sorted(allowed)

    def _tick(self) -> None:
        """Count microbatches since the last optimizer step; Lightning's own count is off by one after a crash."""
        step, before = self.global_step, self._position
        self._position = before._replace(step=step, micro=before.micro + 1 if step == before.step else 0)

    # -- one batch ----------------------------------------------------------------------------------------------

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        self._tick()
        cond = dict(batch)
        x0 = cond.pop("image")
        seed_dropout(self.streams, self.position, x0.device)
        t, weight = self.draw_timesteps(x0, cond)
        loss = self.denoiser.loss(x0, self.noise(x0), t, **cond)
        objective = self.weighting(loss.parts.loss, loss.snr, loss.parts.scale, self._position.step) + loss.vlb
        record = StepRecord(x0, cond, t, loss.native.detach(), objective.detach(), loss.errors, weight=weight.detach())
        return {"loss": (weight * objective).mean(), "record": record}

    def on_train_batch_end(self, outputs: dict[str, Any], batch: dict[str, Tensor], batch_idx: int) -> None:
        """Call `after_step` after the last microbatch of an update, in which `global_step` has increased."""
        self._records.append(outputs["record"])
        step = self.global_step
        if step > self._position.step:
            records, self._records = self._records, []
            for act in self.after_step:
                act(step, records)

    def noise(self, x0: Tensor) -> Tensor:
        """eps (b,C,H,W): this microbatch's rows of the step's noise, which is drawn for the whole global batch."""
        position, rows = self.position, len(x0)
        shape = (position.global_rows(rows), *x0.shape[1:])
        return self.streams.normal(shape, "noise", position.step, device=x0.device)[position.rows(rows)]


def match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Give the optimizer's moments the memory format of their weights.

    A fused optimizer reads both in memory order without a check, and moments from a checkpoint have the memory format
    in which they were saved, which differs if `channels_last` has changed.
    """
    for weight, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                state[key] = torch.empty_like(weight, dtype=value.dtype).copy_(value)


def seed_dropout(streams: Streams, position: Position, device: torch.device) -> None:
    """Seed PyTorch's global generators, which only dropout uses, from the position.

    Masks differ between processes, so results are independent of the number of processes only without dropout.
    """
    key = streams.key("dropout", position.step, position.micro, position.rank)
    torch.default_generator.manual_seed(key)
    if device.type == "cuda":
        torch.cuda.default_generators[device.index].manual_seed(key)
