"""What a timestep sampler is given: the probe, the context of a call, the record of an update.

b rows of this process and microbatch, A microbatches of one update, W processes; G = b*A*W rows of the global batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from diffusion_lab.distributed import gather_rows
from diffusion_lab.streams import Position, Streams


class Probe(Protocol):
    """Evaluates the network's loss outside the training step, in eval mode and without gradients of the run."""

    def loss(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Native loss of each image at each timestep: (B,C,H,W), (K,) -> (B,K). The noise is a function of `seed`."""
        ...

    def pairs(
        self, x0: Tensor, t: Tensor, index: Tensor, total: int, seed: int, keep_mode: bool = False, **cond: Tensor
    ) -> Tensor:
        """Native loss of each image at its own timestep: (N,C,H,W), (N,) -> (N,).

        The noise of a pair is a function of `seed` and of its number `index` (N,) in [0, total). With `keep_mode` the
        network stays in training mode, with dropout.
        """
        ...

    def grad_sq_norm(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> Tensor:
        """Squared norm of each image's own gradient at its own timestep: (B,C,H,W), (B,) -> (B,)."""
        ...

    def grad_moments(self, x0: Tensor, t: Tensor, seed: int, **cond: Tensor) -> tuple[Tensor, Tensor]:
        """At each timestep, over single images' gradients g: |g - mean g|^2 summed / (B-1), and the mean of |g|^2.

        (B,C,H,W), (K,) -> (K,), (K,), equal on all processes, which must all call it with the same arguments.
        """
        ...


class Context:
    """What `draw` and `observe` are given besides data, and their only source of random numbers.

    Args:
        position: optimizer step k (the same in the `draw` and the `observe` of one update), process, microbatch.
        streams: the run's random numbers; a draw uses the stream "timesteps", a second one "timesteps-1", and so on.
        device: of the random numbers.
        probe: evaluates losses, or None outside a run.
        cond: conditions of the current rows, the network's keywords.
        draw: number of earlier draws for the same rows, for a step that needs two times of each image.
    """

    def __init__(
        self,
        position: Position,
        streams: Streams,
        device: torch.device | str = "cpu",
        probe: Probe | None = None,
        cond: dict[str, Tensor] | None = None,
        draw: int = 0,
    ) -> None:
        self.step, self.rank, self.world_size, self.micro, self.accumulate = position[:5]
        self.probe = probe
        self.cond = cond or {}
        self.device = device
        self._position = position
        self._streams = streams
        self._stream = f"timesteps-{draw}" if draw else "timesteps"
        self._calls = 0

    def probe_for(self, sampler: object) -> Probe:
        """The probe, for a sampler that needs one.

        Raises:
            ValueError: there is no probe.
        """
        if self.probe is None:
            name = type(sampler).__name__
            raise ValueError(f"probe=None must be a Probe, because {name} evaluates losses; give Context(probe=...)")
        return self.probe

    def global_uniform(self, n: int, columns: int | None = None) -> Tensor:
        """(G,) float64 in [0, 1): the numbers of the whole global batch, equal on every process and microbatch.

        With `columns`, (G, columns). Each call within one draw returns new numbers.
        """
        self._calls += 1
        size = self._position.global_rows(n)
        u = self._streams.uniform(size * (columns or 1), self._stream, self.step, self._calls, device=self.device)
        return u if columns is None else u.view(size, columns)

    def uniform(self, n: int, columns: int | None = None) -> Tensor:
        """(n,) or (n, columns) float64 in [0, 1): this process's and microbatch's rows of `global_uniform`."""
        return self.global_uniform(n, columns)[self.rows(n)]

    def rows(self, n: int) -> slice:
        """The rows of the global batch that are the n local ones."""
        return self._position.rows(n)

    def global_rows(self, n: int) -> int:
        """G for n local rows."""
        return self._position.global_rows(n)

    @property
    def generator(self) -> torch.Generator:
        """A generator that is equal on every process and microbatch of this update; new numbers at each access."""
        self._calls += 1
        return self._streams.generator(self.device, self._stream, self.step, self._calls)

    def generator_of(self, stream: str) -> torch.Generator:
        """A generator of another stream, a function of seed, stream and step alone: equal on every process and in
        every call. For what must be independent of the draws of the same step."""
        return self._streams.generator(self.device, stream, self.step)


def joined(parts: Sequence[Any]) -> Any:
    """The rows of several records of one kind, tensor by tensor, without those that are None; what is no tensor is that
    of the first."""
    parts = [part for part in parts if part is not None] or [None]
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {key: joined([part[key] for part in parts]) for key in first}
    if hasattr(first, "_fields"):
        return type(first)(*map(joined, zip(*parts, strict=True)))
    return first


@dataclass
class StepRecord:
    """The rows of one update on this process, detached from the graph.

    Attributes:
        x0: (A*b, C, H, W) clean images, in the order of the microbatches.
        cond: conditioning of these rows.
        t: (A*b,) int64 timesteps.
        loss: (A*b,) native loss of each row: the mean over C, H, W of the squared error to the prediction's target.
        objective: (A*b,) the same after weighting and with the bound's variance term, before the draw's weight.
        errors: (A*b, E) errors that a prediction of several heads tracks; None or E = 0 otherwise.
        microbatches: (A,) rows of each, which need not be equal with a loader of one's own; empty for one.
        weight: (A*b,) weight of each row from the draw, or None.
        auxiliary: name -> (A*b,) the rows of each auxiliary loss that was computed, before its weight.
        index: (A*b,) int64 the number of each image among the training images; None where they have none.
    """

    x0: Tensor
    cond: dict[str, Tensor]
    t: Tensor
    loss: Tensor
    objective: Tensor
    errors: Tensor | None = None
    microbatches: tuple[int, ...] = ()
    weight: Tensor | None = None
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)
    index: Tensor | None = None
    _all: tuple[Tensor, Tensor, Tensor] | None = field(default=None, repr=False)

    @staticmethod
    def join(records: Sequence[StepRecord]) -> StepRecord:
        """The record of an update from those of its microbatches."""
        if len(records) == 1:
            return records[0]
        names = [one.name for one in fields(StepRecord) if one.name not in ("microbatches", "_all")]
        rows = {name: joined([getattr(record, name) for record in records]) for name in names}
        return StepRecord(**rows, microbatches=tuple(len(record.t) for record in records))

    def gather(self, local: Tensor) -> Tensor:
        """Rows of all processes in the order of the global batch: (A*b, ...) -> (G, ...), equal on all of them.

        The order does not depend on how the global batch is split. Must be called by every process or by none.
        """
        rows = gather_rows(local)  # process by process
        if len(self.microbatches) < 2 or len(rows) == len(local):
            return rows
        parts = rows.unflatten(0, (-1, len(local))).split(self.microbatches, 1)
        return torch.cat([part.flatten(0, 1) for part in parts])  # the global batch is cut into microbatches first

    def gathered(self, objective: bool = False) -> tuple[Tensor, Tensor]:
        """t (G,) and loss (G,) float64 by `gather`, with one communication however often it is called.

        With `objective` the weighted loss instead of the native one.
        """
        if self._all is None:
            local = torch.stack([self.t.double(), self.loss.double(), self.objective.double()], dim=1)
            rows = self.gather(local)
            self._all = rows[:, 0].long(), rows[:, 1], rows[:, 2]
        t, loss, weighted = self._all
        return t, weighted if objective else loss
