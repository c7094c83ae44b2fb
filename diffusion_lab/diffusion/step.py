"""What is known of the rows of a training step, for auxiliary losses and for weightings that use more than the SNR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from diffusion_lab.diffusion.denoiser import Denoiser
from diffusion_lab.distributed import gather_rows
from diffusion_lab.streams import Position, Streams


@dataclass(frozen=True)
class Step:
    """The b rows of one microbatch on one process, with the graph of the network's pass.

    Attributes:
        denoiser: the model, with its schedule and prediction.
        x0: (b,C,H,W) clean images.
        eps: (b,C,H,W) their noise.
        t: (b,) int64 timesteps, or a map of them.
        cond: name -> (b,...) the network's conditions.
        x_t: (b,C,H,W) noisy images, in the coordinates of the schedule's path.
        out: (b,heads*C,H,W) the network's output without the channels of the variance.
        position: optimizer step, process and microbatch.
        streams: the run's random numbers; those of an auxiliary loss are of the stream "auxiliary".
        features: name of a layer -> what it returned in this pass.
        index: (b,) int64 the number of each image among the training images; None where they have none.
    """

    denoiser: Denoiser
    x0: Tensor
    eps: Tensor
    t: Tensor
    cond: Mapping[str, Tensor]
    x_t: Tensor
    out: Tensor
    position: Position
    streams: Streams
    features: Mapping[str, Tensor] = field(default_factory=dict)
    index: Tensor | None = None

    def gather(self, rows: Tensor) -> Tensor:
        """Rows of all processes in the order of the global batch, (b,...) -> (G,...), without accumulation.

        The gradient flows into the own rows alone. A loss L of all G rows, the same on each of W processes, must
        therefore be returned as W times its gradient, since the processes' gradients are averaged: `of_all` does that.
        """
        if self.position.world_size == 1:
            return rows
        whole = gather_rows(rows.detach())
        whole[self.position.rows(len(rows))] = rows
        return whole

    def of_all(self, loss: Tensor) -> Tensor:
        """(b,) a loss () of the rows of all processes, which each process has computed from `gather`, as the value of
        each own row, with the gradient that the average over the processes makes that of the loss."""
        whole = (
            loss if self.position.world_size == 1 else loss + (self.position.world_size - 1) * (loss - loss.detach())
        )
        return whole.expand(len(self.x0))

    def uniform(self, number: int = 0) -> Tensor:
        """(b,) float64 in [0, 1): numbers of these rows, whatever the number of processes and microbatches.

        Args:
            number: of the draw within the step; each has numbers of its own.
        """
        rows, (step, *_) = len(self.x0), self.position
        size = self.position.global_rows(rows)
        drawn = self.streams.uniform(size, "auxiliary", step, number, device=self.x0.device)
        return drawn[self.position.rows(rows)]
