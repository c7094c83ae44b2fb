"""The LightningModule of a diffusion model: one training step."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from diffusion_lab.auxiliary import Auxiliary
from diffusion_lab.data.own_batches import OwnBatches
from diffusion_lab.diffusion import Denoiser, Step, TrainingNoise, Weighting
from diffusion_lab.diffusion.time_map import means_of
from diffusion_lab.distributed import gather_rows
from diffusion_lab.failure import WrongResult
from diffusion_lab.optimizers import Weights
from diffusion_lab.streams import Position, Streams
from diffusion_lab.timesteps import Context, Draw, StepRecord, Uniform
from diffusion_lab.training.auxiliary_losses import AuxiliaryLosses, accumulation_faults
from diffusion_lab.training.run_module import RunModule, seed_dropout
from diffusion_lab.training.validation_loss import ValidationLoss, own_batches

log = logging.getLogger(__name__)

LOG_SNR_POINTS = 101  # of the noise schedule in run.json
DrawTimesteps = Callable[[Tensor, dict[str, Tensor]], Draw]


@dataclass(frozen=True)
class Pairs:
    """What the b rows of a microbatch are trained on. A step that needs more, such as a second time, adds a field in a
    subclass.

    Attributes:
        x0: (b,C,H,W) clean images.
        eps: (b,C,H,W) the noise of each, which the target is made of.
        t: (b,) int64 timesteps, or a map of them, broadcastable to (b,1,H,W).
        weight: (b,) of the draw; with a map (N,), of its N = b H W positions.
        cond: name -> (b,...) the network's conditions.
        at_input: (b,C,H,W) the noise in x_t, where a coupling has another there; None for `eps`.
    """

    x0: Tensor
    eps: Tensor
    t: Tensor
    weight: Tensor
    cond: dict[str, Tensor]
    at_input: Tensor | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Losses:
    """What a step computes of its N = b rows; with a map of times, of its N = b H W positions, row by row.

    Attributes:
        loss: (N,) what is logged as train/loss, and what samplers learn from.
        objective: (N,) what is differentiated, before the draw's weight.
        errors: (N,E) what a prediction of several heads tracks; None without them.
        x_t: (b,C,H,W) noisy images; only for auxiliary losses.
        out: (b,heads*C,H,W) the network's output at them; only for auxiliary losses.
    """

    loss: Tensor
    objective: Tensor
    errors: Tensor | None = None
    x_t: Tensor | None = None
    out: Tensor | None = None


class DiffusionModule(RunModule):
    """Loss of one batch at sampled timesteps.

        t, w ~ sampler,   eps ~ N(0, I),   l_i = |target - network(x_t, t)|^2 / (C H W)
        loss = mean_i  w_i (weighting(l_i) + variance term_i)  +  auxiliary losses

    A step is `pair`, what is drawn, `losses`, of each row, and `total`, one number. A subclass overrides what differs
    in it, and what surrounds it stays: conditions, positions, records, auxiliary losses. One whose losses compare rows
    sets `of_batch`; with several processes it needs `distributed.gather_rows`.

    Timesteps come from the attribute `draw_timesteps`, which is uniform until a callback replaces it, so the module
    trains and loads without any callback.

    Where `pair` gives a map of times, each position is a row of its own to prediction, weighting and `total`; records
    and logs have the means of each image.

    Attributes:
        calls_beside: network calls without gradients of each row, beside the trained one: for the estimate of a cost.

    Args:
        denoiser: network, noise schedule, prediction and reverse variance.
        weighting: weight of each row's native loss.
        optimizer: parameters -> optimizer.
        streams: the run's random numbers.
        coupling: the noise of the images of the global batch; None for independent noise.
        auxiliary: losses that are added, by name.

    Raises:
        ValueError: an auxiliary loss names a layer that the network does not have.
    """

    calls_beside: ClassVar[int] = 0
    denoiser: Denoiser
    weighting: Weighting
    draw_timesteps: DrawTimesteps

    def __init__(
        self,
        denoiser: Denoiser,
        weighting: Weighting,
        optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
        streams: Streams,
        coupling: TrainingNoise | None = None,
        auxiliary: Mapping[str, Auxiliary] | None = None,
    ) -> None:
        super().__init__(streams)
        self.denoiser = denoiser
        self.weighting = weighting
        self.make_optimizer = optimizer
        self.coupling = coupling
        self._draws: tuple[Position | None, int] = None, 0  # the last position of a draw, and its earlier draws there
        self.auxiliary = AuxiliaryLosses(auxiliary or {}, denoiser.network)
        self._own_batches: OwnBatches | None = None
        self._index: Tensor | None = None  # the numbers of the current rows' images
        self._validation: ValidationLoss | None = None
        self._uniform = [Uniform(denoiser.num_timesteps)]  # in a list, so that it is not registered as a submodule
        self._uniformly = lambda x0, cond: self._uniform[0].to(x0.device).draw(x0, self.context(x0, cond))
        self.use_uniform_timesteps()

    @property
    def model(self) -> Denoiser:
        return self.denoiser

    @property
    def network(self) -> nn.Module:
        return self.denoiser.network

    def context(self, x0: Tensor, cond: dict[str, Tensor], probe: Any = None) -> Context:
        """What a sampler is given for these rows. Each call within a microbatch has random numbers of its own, so that
        a step can draw several times."""
        position, count = self._draws
        self._draws = self.position, count + 1 if position is self.position else 0
        return Context(self.position, self.streams, x0.device, probe, cond, draw=self._draws[1])

    def facts(self) -> dict[str, Any]:
        """ln SNR at up to 101 equally spaced timesteps, from the first to the last."""
        log_snr = self.denoiser.schedule.log_snr
        at = torch.linspace(0, len(log_snr) - 1, min(LOG_SNR_POINTS, len(log_snr)), dtype=torch.float64)
        return {"log_snr": [round(value, 4) for value in log_snr.cpu()[at.round().long()].tolist()]}

    def use_uniform_timesteps(self) -> None:
        """Draw t uniformly, as without a sampler."""
        self.draw_timesteps = self._uniformly

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.make_optimizer(Weights(self))

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

    # -- one batch ----------------------------------------------------------------------------------------------

    def on_fit_start(self) -> None:
        super().on_fit_start()
        uniform = self.draw_timesteps is self._uniformly  # the callbacks come before the module
        if uniform and self.trainer.is_global_zero:
            log.warning(
                "No TimestepSampling is among the trainer's callbacks, so timesteps are uniform; "
                "use callbacks=[TimestepSampling(sampler)] for another sampler"
            )
        self._find_learning()
        losses = {f"auxiliary.{name}": loss for name, loss in self.auxiliary.losses.items()}
        parts = {"model": type(self), "coupling": self.coupling} | losses
        for fault in accumulation_faults(self.trainer.accumulate_grad_batches, parts):
            raise ValueError(fault)

    def _find_learning(self) -> None:
        """The weightings that learn from updates, also inside others, are shown those that follow."""
        self._learning = [
            part
            for part in self.weighting.modules()
            if isinstance(part, Weighting) and type(part).observe is not Weighting.observe
        ]
        if self._learning:  # for others, joining the records would copy the images
            self.after_step.append(self._show_weighting)

    def _show_weighting(self, step: int, records: list[StepRecord]) -> None:
        record = StepRecord.join(records)
        for part in self._learning:
            part.observe(record, self.denoiser.schedule.snr)

    def logged(self, record: StepRecord) -> dict[str, Tensor]:
        return super().logged(record) | {f"train/aux_{name}": rows for name, rows in record.auxiliary.items()}

    def on_train_start(self) -> None:
        super().on_train_start()
        self._own_batches = own_batches(self.trainer, self.denoiser)

    def read(self, batch: Any) -> dict[str, Tensor]:
        """What a batch has, the images under "image"; of a loader of one's own as `OwnBatches` says."""
        return dict(batch) if self._own_batches is None else self._own_batches.read(batch)

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        cond = self.read(batch)
        x0 = cond.pop("image")
        self._tick(len(x0))
        # In batches of one's own `index` may be a keyword of the network.
        self._index = cond.pop("index", None) if self._own_batches is None else None
        seed_dropout(self.streams, self.position, x0.device)
        pairs = self.pair(x0, cond)
        with nullcontext() if self._own_batches is None else self._own_batches.fit(x0), self.auxiliary.watching():
            losses = self.losses(pairs)
        loss = self.total(pairs, losses)
        added: dict[str, Tensor] = {}
        if self.auxiliary:
            added = self.auxiliary.rows(self._step_of(pairs, losses.x_t, losses.out))
            loss = loss + self.auxiliary.total(added, self._position.step)
        record = StepRecord(
            x0,
            cond,
            means_of(pairs.t.flatten(), len(x0)),
            means_of(losses.loss.detach(), len(x0)),
            means_of(losses.objective.detach(), len(x0)),
            None if losses.errors is None else means_of(losses.errors, len(x0)),
            weight=means_of(pairs.weight.detach(), len(x0)),
            auxiliary={name: rows.detach() for name, rows in added.items()},
            index=self._index,
        )
        return {"loss": loss, "record": record}

    def pair(self, x0: Tensor, cond: dict[str, Tensor]) -> Pairs:
        """Timesteps and noise of these rows, (b,C,H,W) and the network's conditions."""
        t, weight = self.draw_timesteps(x0, cond)
        eps, at_input = self.noises(x0)
        return Pairs(x0, eps, t, weight, cond, at_input=at_input)

    def losses(self, pairs: Pairs) -> Losses:
        """The loss of each row."""
        other = {} if pairs.at_input is None else {"at_input": pairs.at_input}  # own denoisers need not know it
        loss = self.denoiser.loss(pairs.x0, pairs.eps, pairs.t, **other, **pairs.cond)
        seen = {"record": self._step_of(pairs, loss.x_t, loss.out)} if self.weighting.uses_record else {}
        weighted = self.weighting(loss.parts.loss, loss.snr, loss.parts.scale, self._position.step, **seen)
        return Losses(loss.native, weighted + loss.vlb, loss.errors, loss.x_t, loss.out)

    def total(self, pairs: Pairs, losses: Losses) -> Tensor:
        """() what is differentiated, without the auxiliary losses. The mean over accumulated microbatches and processes
        is taken of it."""
        return (pairs.weight * losses.objective).mean()

    def _step_of(self, pairs: Pairs, x_t: Tensor | None, out: Tensor | None) -> Step:
        if x_t is None or out is None:
            raise WrongResult.of(self, "losses", "Losses with x_t and out, as auxiliary losses are given both", None)
        rows = pairs.x0, pairs.eps, pairs.t, pairs.cond, x_t, out
        return Step(self.denoiser, *rows, self.position, self.streams, self.auxiliary.features, self._index)

    def noise(self, x0: Tensor, draw: int = 0) -> Tensor:
        """eps (b,C,H,W): this microbatch's noise of the target; a step that needs further noise numbers its draws."""
        return self.noises(x0, draw)[0]

    def noises(self, x0: Tensor, draw: int = 0) -> tuple[Tensor, Tensor | None]:
        """This microbatch's rows (b,C,H,W) of the step's noise, which is drawn for the whole global batch: that of the
        target, and that at the input where a coupling has another there.

        Args:
            x0: (b,C,H,W) the images.
            draw: of the step's noise; each has numbers of its own.
        """
        position, rows = self.position, len(x0)
        shape, at = (position.global_rows(rows), *x0.shape[1:]), (position.step, *([draw] if draw else []))
        eps = self.streams.normal(shape, "noise", *at, device=x0.device)
        here = position.rows(rows)
        if self.coupling is None:
            return eps[here], None
        draws = itertools.count(1)

        def normal(shape: tuple[int, ...]) -> Tensor:
            return self.streams.normal(shape, f"noise-{next(draws)}", *at, device=x0.device)

        eps = self.coupling.noise(gather_rows(x0) if self.coupling.uses_images else None, eps, normal)
        at_input = self.coupling.input(eps, normal)
        return eps[here], None if at_input is eps else at_input[here]

    # -- Lightning's validation, which our own trainer does not use ----------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._validation = ValidationLoss(self.denoiser, self.trainer)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        assert self._validation is not None
        self._validation.add(batch)

    def on_validation_epoch_end(self) -> None:
        """Log `val/loss`, and where epochs are endless also `train/loss`."""
        assert self._validation is not None
        self.log("val/loss", self._validation.mean().float(), sync_dist=True)
        if self.trainer.state.fn == TrainerFn.FITTING and self.trainer.max_epochs == -1:
            self.log_train_loss()
