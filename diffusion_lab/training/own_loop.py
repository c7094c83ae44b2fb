"""A timestep sampler in a training loop that is not Lightning's: plain PyTorch, diffusers, accelerate."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.distributed import broadcast_, rank, world_size
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Draw, Position, StepRecord, TimestepSampler
from diffusion_lab.timesteps.base import check_sampler
from diffusion_lab.training.finite import NotFinite
from diffusion_lab.training.probe import DenoiserProbe

Losses = Callable[..., Tensor]  # (x0, eps, t, **cond) -> (b,)


class LoopSampler:
    """Draws the timesteps of your own loop, and shows the sampler the losses.

        timesteps = LoopSampler(sampler, seed=0)
        for x0 in batches:
            t, weight = timesteps.draw(x0)                  # (b,) each, weight is 1 unless the sampler reweights
            loss = squared_error(x0, t)                     # (b,), the mean over C, H, W of each image
            (weight * loss).mean().backward(); optimizer.step(); optimizer.zero_grad()
            timesteps.observe(loss)                         # after the step; a sampler that adapts learns here

    The draws are a function of (seed, step): after `load_state_dict` the loop goes on with the same ones. With
    torch.distributed each process draws its own rows of the global batch, whatever the number of processes.

    Args:
        sampler: a timestep sampler on the T timesteps of your noise schedule.
        seed: of the draws, >= 0; the same on all processes.
        accumulate: draws of one optimizer step, >= 1 (gradient accumulation).
        losses: for a sampler that evaluates losses itself (`uses_probe`): (x0, eps, t, **cond) -> (b,), the same error
            as the loop's.
        network: what `losses` calls; it is put into eval mode meanwhile.

    Raises:
        ValueError: the sampler evaluates losses and `losses` or `network` is missing.
    """

    def __init__(
        self,
        sampler: TimestepSampler,
        seed: int = 0,
        accumulate: int = 1,
        losses: Losses | None = None,
        network: nn.Module | None = None,
    ) -> None:
        self.sampler, self._streams = check_sampler("sampler", sampler), Streams(seed)
        self.accumulate = check_integer("accumulate", accumulate, 1, "use 1 without gradient accumulation")
        if sampler.uses_probe and (losses is None or network is None):
            missing = "losses" if losses is None else "network"
            raise ValueError(
                f"{missing}=None must be given, because {type(sampler).__name__} evaluates losses itself; use "
                "LoopSampler(sampler, losses=lambda x0, eps, t: ..., network=network)"
            )
        self._evaluated = None if losses is None or network is None else _Evaluated(network, losses)
        self._adapts = type(sampler).observe is not TimestepSampler.observe
        self._step = 0
        self._shape: tuple[int, ...] | None = None
        self._drawn: list[tuple[Tensor, dict[str, Tensor], Draw]] = []  # of this optimizer step
        self._sums: list[tuple[int, Tensor]] = []  # step and sum of its losses, which the host has not looked at

    @property
    def step(self) -> int:
        """Optimizer steps that are over."""
        return self._step + (not self._adapts and len(self._drawn) == self.accumulate)

    def draw(self, x0: Tensor, **cond: Tensor) -> Draw:
        """Timesteps t (b,) int64 and weights (b,) float32 for the images or latents x0 (b,C,H,W).

        Args:
            x0: the clean images of this microbatch, on the device of training.
            **cond: what the network is given beside them, a row each; for samplers that evaluate losses.

        Raises:
            ValueError: x0 is no batch, or the losses of the last step were not shown to a sampler that learns from
                them.
        """
        if not (isinstance(x0, Tensor) and x0.ndim >= 2):
            shown = f"of shape {tuple(x0.shape)}" if isinstance(x0, Tensor) else reprlib.repr(x0)
            raise ValueError(f"x0={shown} must be the clean images of the rows, (b,C,H,W); use draw(images)")
        if len(self._drawn) == self.accumulate:
            if self._adapts:
                raise ValueError(
                    f"{type(self.sampler).__name__} must see the losses of each step; call observe(loss) after "
                    "optimizer.step(), or give LoopSampler(accumulate=...) draws to a step"
                )
            self._next_step()
        self._set_up(tuple(x0.shape[1:]), x0.device)
        drawn = self.sampler.draw(x0, self._context(len(x0), x0.device, len(self._drawn), cond))
        kept = x0.detach() if self._adapts else x0[:0]
        self._drawn.append((kept, cond, drawn))
        return drawn

    def observe(self, loss: Tensor, objective: Tensor | None = None) -> None:
        """End an optimizer step: show the sampler its losses.

        Args:
            loss: (A*b,) mean squared error of each row to the network's target, in the order of the step's draws.
            objective: (A*b,) the same after the weighting of the loss, but without the draw's weight; None: equal.

        Raises:
            ValueError: no draw of this step, or another number of rows than were drawn.
            NotFinite: a loss is NaN or infinite; on a GPU, where reading one makes the host wait, within 20 steps.
        """
        weighted = self._check_losses(loss, loss if objective is None else objective)
        self._sums.append((self._step + 1, loss.detach().float().sum() + weighted.detach().float().sum()))
        if len(self._sums) >= _steps_between_looks(loss.device):
            self._check_finite()
        if self._adapts:
            records = []
            sizes = [len(drawn.t) for *_, drawn in self._drawn]
            for (x0, cond, (t, weight)), own, ours in zip(
                self._drawn, loss.detach().split(sizes), weighted.detach().split(sizes), strict=True
            ):
                records.append(StepRecord(x0, cond, t, own, ours, weight=weight))
            record = StepRecord.join(records)
            self.sampler.observe(record, self._context(sizes[0], loss.device, 0, record.cond))
        self._next_step()

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state and the step, for a checkpoint between two steps.

        Raises:
            NotFinite: a loss since the last check was NaN or infinite.
        """
        self._check_finite()
        return {"step": self.step, "image_shape": self._shape, "sampler": dict(self.sampler.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Raises:
            ValueError: it is no state of a loop with such a sampler.
        """
        try:
            step, shape, saved = int(state["step"]), state["image_shape"], state["sampler"]
            if shape is not None:
                self._set_up(tuple(shape), torch.device("cpu"))
                self.sampler.load_state_dict(saved)
        except (KeyError, TypeError, RuntimeError) as error:
            kind = type(self.sampler).__name__
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise ValueError(
                f"state must be the state_dict() of a LoopSampler with a {kind} like this one ({why}); use the sampler "
                "of the loop that saved it"
            ) from error
        self._step, self._drawn, self._sums = step, [], []

    def _check_losses(self, loss: Tensor, objective: Tensor) -> Tensor:
        """`objective`, if both have a value for each row that was drawn; else ValueError."""
        if not self._drawn:
            raise ValueError("observe(loss) must follow the draws of its step, and there is none; call draw(x0) first")
        rows = sum(len(drawn.t) for *_, drawn in self._drawn)
        for name, value in (("loss", loss), ("objective", objective)):
            if not isinstance(value, Tensor) or value.shape != (rows,) or len(self._drawn) != self.accumulate:
                shown = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"={reprlib.repr(value)}"
                raise ValueError(
                    f"{name}{shown} must have a value for each of the {rows} rows of {len(self._drawn)} of "
                    f"{self.accumulate} draws; call observe once per optimizer step with (rows,), not with their mean"
                )
        return objective

    def _check_finite(self) -> None:
        """Raise if a loss of the steps since the last check is not finite."""
        sums, self._sums = self._sums, []
        fine = torch.isfinite(torch.stack([value for _, value in sums])).tolist() if sums else []
        if not all(fine):
            step = sums[fine.index(False)][0]
            raise NotFinite(
                f"the loss is not finite at optimizer step {step}, and the sampler would learn from it; lower the "
                "learning rate, check the images of this step, and go on from a state_dict from before it"
            )

    def _next_step(self) -> None:
        self._step, self._drawn = self._step + 1, []

    def _set_up(self, shape: tuple[int, ...], device: torch.device) -> None:
        """Build what depends on the images' shape, once, and move the sampler to their device."""
        if self._shape is None:
            self.sampler.setup(shape)
            self._shape = shape
            self.sampler.to(device)
            for tensor in (*self.sampler.parameters(), *self.sampler.buffers()):
                broadcast_(tensor.data)
        self.sampler.to(device)

    def _context(self, rows: int, device: torch.device, micro: int, cond: dict[str, Tensor]) -> Context:
        first = len(self._drawn[0][2].t) if self._drawn else rows
        position = Position(self._step, rank(), world_size(), micro, self.accumulate, first, rows)
        probe = None
        if self._evaluated is not None:
            probe = DenoiserProbe(self._evaluated, self._streams, max_rows=2 * rows)
        return Context(position, self._streams, device, probe, cond)


def _steps_between_looks(device: torch.device) -> int:
    """At the losses: the host waits for a GPU at each."""
    return 1 if device.type == "cpu" else 20


class _Evaluated(nn.Module):
    """What a probe needs of a denoiser, from a network and the function of its losses."""

    def __init__(self, network: nn.Module, losses: Losses) -> None:
        super().__init__()
        self.network, self._losses = network, losses.__call__  # no part of it, if the function is a module

    def loss(self, x0: Tensor, eps: Tensor, t: Tensor, **cond: Tensor) -> SimpleNamespace:
        return SimpleNamespace(native=self._losses(x0, eps, t, **cond))
