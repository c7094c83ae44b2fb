"""The microbatches of training images, a function of (seed, step) alone.

    G = b * world_size * accumulate   global batch: the images of one optimizer step
    N                                 images

The images of step k are those of an `ImageOrder`, by default of `Permutations`, so an interrupted run continues at its
step without any saved state. Within a step, microbatch m of rank r takes the rows [(m * world_size + r) b, +b).

Differs from NVlabs/edm2 `InfiniteSampler`: whole permutations per epoch instead of a shuffle window, and the
position is counted in optimizer steps, so the order does not depend on the number of ranks or accumulation steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile

from torch import Tensor
from torch.utils.data import Sampler

from diffusion_lab.arguments import check_integer
from diffusion_lab.data.image_order import Indices, Permutations
from diffusion_lab.streams import Streams


class Rows(list[int]):
    """Image numbers of one microbatch, with their position in the run.

    Attributes:
        step: optimizer step, from 0.
        row: index of the first of them in the global batch.
    """

    def __init__(self, ids: Iterable[int], step: int, row: int) -> None:
        super().__init__(ids)
        self.step = step
        self.row = row


class StepOrder(Sampler[Rows]):
    """Endless batch sampler: the `Rows` of each microbatch of each step, starting at the step `start()`.

    Args:
        num_images: N.
        batch_size: G, images of one optimizer step over all ranks and microbatches.
        streams: the run's random numbers.
        rank: this process, 0..world_size-1.
        world_size: number of processes.
        accumulate: microbatches of one optimizer step.
        start: called at the start of an iteration; returns its first optimizer step.
        choose: step -> (G,) int64, the images of a step; None is `Permutations`.

    Raises:
        ValueError: a number below 1, a rank outside its range, or G not a multiple of world_size * accumulate.
    """

    def __init__(
        self,
        num_images: int,
        batch_size: int,
        streams: Streams,
        rank: int = 0,
        world_size: int = 1,
        accumulate: int = 1,
        start: Callable[[], int] = lambda: 0,
        choose: Indices | None = None,
    ) -> None:
        check_integer("num_images", num_images, 1, "give a data set with images")
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(f"rank={rank} must lie in 0..{world_size - 1}, below world_size={world_size}")
        check_batch_size(batch_size, world_size, accumulate)
        self.num_images = num_images
        self.batch_size = batch_size
        self.rank, self.world_size, self.accumulate = rank, world_size, accumulate
        self.rows_per_batch = batch_size // (world_size * accumulate)
        self.start = start
        self._choose = choose or Permutations(num_images, batch_size, streams)

    def indices(self, step: int) -> Tensor:
        """(G,) int64: the images of optimizer step `step` (>= 0), over all ranks and microbatches."""
        return self._choose(step)

    def local_indices(self, step: int) -> Tensor:
        """(G / world_size,) int64: the images of this rank in step `step`, microbatch after microbatch."""
        micro = self.indices(step).view(self.accumulate, self.world_size, self.rows_per_batch)
        return micro[:, self.rank].flatten()

    def __iter__(self) -> Iterator[Rows]:
        step, b = self.start(), self.rows_per_batch
        while True:
            ids = self.indices(step).tolist()
            for micro in range(self.accumulate):
                row = (micro * self.world_size + self.rank) * b
                yield Rows(ids[row : row + b], step, row)
            step += 1


class EpochOrder(StepOrder):
    """The same order in pieces of one pass each, for a trainer that counts epochs.

    An epoch is S = floor(N/G) steps: epoch e has the steps eS .. (e+1)S - 1 of the endless order, and the N mod G
    images that fill no step begin the next one. An iteration ends at the next multiple of S.
    """

    @property
    def steps(self) -> int:
        """Optimizer steps of one epoch, at least 1."""
        return max(1, self.num_images // self.batch_size)

    def __len__(self) -> int:
        """Microbatches of one epoch."""
        return self.steps * self.accumulate

    def __iter__(self) -> Iterator[Rows]:
        last = (self.start() // self.steps + 1) * self.steps
        yield from takewhile(lambda rows: rows.step < last, super().__iter__())


def check_batch_size(batch_size: int, world_size: int, accumulate: int) -> None:
    """Raise ValueError unless the global batch divides evenly among processes and microbatches."""
    check_integer("batch_size", batch_size, 1, "use batch_size=64")
    check_integer("accumulate", accumulate, 1, "use accumulate=1")
    unit = world_size * accumulate
    if batch_size % unit:
        below, above = batch_size // unit * unit, (batch_size // unit + 1) * unit
        near = f"{below} or {above}" if below else f"{above}"
        raise ValueError(
            f"batch_size={batch_size} must be a multiple of {world_size} processes x {accumulate} accumulation "
            f"steps = {unit}; use {near}"
        )
