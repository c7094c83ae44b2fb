"""Which images each optimizer step trains on: a new permutation in each epoch, or the easy ones first.

N   images
G   images of one optimizer step, over all processes and microbatches
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.data.source import ImageSet
from diffusion_lab.distributed import rank
from diffusion_lab.failure import WrongResult
from diffusion_lab.progress import progress
from diffusion_lab.streams import Streams

Indices = Callable[[int], Tensor]  # optimizer step >= 0 -> (G,) int64 on the CPU, in 0..N-1
TOGETHER = 256  # images whose difficulty is computed at once


class ImageOrder(ABC):
    """Which images each optimizer step trains on.

    The images of a step are a function of (seed, stream, step) and of the images themselves, without a history: they
    are asked for at any step, in any order of the steps, and each process asks alone. Then a run resumes to the bit,
    and the numbers of workers, processes and microbatches change nothing. Random numbers come from the stream "order".

    An image may come more often than others, several times in a step, or never. The loss is not weighted for it: a
    weighting or an auxiliary loss that should do so is given the images' numbers (`Step.index`).
    """

    @abstractmethod
    def over(self, images: ImageSet, rows: int, streams: Streams) -> Indices:
        """The order of these images: a function from the step to the numbers of its images.

        It may keep what it computes, if it would compute the same again.

        Args:
            images: the N training images.
            rows: G.
            streams: the run's random numbers.
        """


class Permutations:
    """The entries kG .. (k+1)G - 1 of the permutations pi_0, pi_1, .. one after the other, for step k.

    pi_e is a permutation of 0..N-1 keyed ("order", e), so each epoch has every image exactly once, even if a step spans
    two epochs (or more, if G > N).

    Args:
        num_images: N.
        rows: G.
        streams: the run's random numbers.
    """

    def __init__(self, num_images: int, rows: int, streams: Streams) -> None:
        self.num_images, self.rows, self.streams = num_images, rows, streams
        self._epoch, self._permutation = -1, torch.empty(0, dtype=torch.int64)

    def __call__(self, step: int) -> Tensor:
        position, missing, parts = step * self.rows, self.rows, []
        while missing:
            epoch, offset = divmod(position, self.num_images)
            parts.append(self._order_of(epoch)[offset : offset + missing])
            position += len(parts[-1])
            missing -= len(parts[-1])
        return torch.cat(parts)

    def _order_of(self, epoch: int) -> Tensor:
        """pi_e; only that of the current epoch is stored."""
        if epoch != self._epoch:
            generator = self.streams.generator("cpu", "order", epoch)
            self._permutation = torch.randperm(self.num_images, generator=generator)
            self._epoch = epoch
        return self._permutation


class Curriculum(ImageOrder):
    """Easy images first: step k trains on the n_k images of least difficulty, and from step K on on all,

        n_k = ceil(c_k N),     c_k = min(1, (c_0^p + (1 - c_0^p) k/K)^(1/p))

    (Platanios et al. 2019, "Competence-based curriculum learning", arXiv 1903.09848, with p = 2 and c_0 = 0.01; p = 1
    is a linear pace.) Where the usual order has the image whose difficulty is number r of N, r = 0 the least, this one
    has number floor(r n_k/N). So all n_k images come equally often, and from step K on the order is the usual one, a
    new permutation in each epoch: a run with a curriculum and one without train on the same images from there.

    Difficulty is the roughness of an image, the mean over pixels and channels of (x_{i+1,j} - x_{ij})^2 and of
    (x_{i,j+1} - x_{ij})^2. It is computed once at the start from all images, also those that are decoded for every
    batch. For another one, such as one from a file, override `difficulty`.

    Differs from Platanios et al.: images of a step are not drawn independently.

    Use: to ask whether the order of the images matters, beside a run without.

    Args:
        steps: K >= 1, optimizer steps until all images take part.
        start: c_0 in (0, 1], share of the images at step 0.
        power: p > 0; the larger, the sooner many images take part.

    Raises:
        ValueError: an argument outside its range.
    """

    def __init__(self, steps: int = 1000, start: float = 0.1, power: float = 2.0) -> None:
        self.steps = check_integer("steps", steps, 1, "use half of max_steps")
        self.start = check_number("start", start, "(]", 0, 1, "use 0.1")
        self.power = check_number("power", power, "()", 0, math.inf, "use 2.0, or 1.0 for a linear pace")

    def difficulty(self, images: ImageSet) -> Tensor:
        """(N,) on the CPU, in any unit; of equal ones the image with the smaller number comes first."""
        found = []
        with progress("difficulty of", len(images), "images", show=rank() == 0) as task:
            for ids in torch.arange(len(images)).split(TOGETHER):
                found.append(roughness(images.take(ids)))
                task.advance(len(ids))
        return torch.cat(found)

    def share(self, step: int) -> float:
        """c_k."""
        if step >= self.steps:
            return 1.0
        first = self.start**self.power
        return (first + (1 - first) * step / self.steps) ** (1 / self.power)

    def over(self, images: ImageSet, rows: int, streams: Streams) -> Indices:
        difficulty, total = self.difficulty(images), len(images)
        if not isinstance(difficulty, Tensor) or difficulty.shape != (total,) or not difficulty.isfinite().all():
            raise WrongResult.of(self, "difficulty", f"{total} finite numbers, one for each image", difficulty)
        ranked = difficulty.argsort(stable=True)
        number = ranked.argsort()  # of each image
        usual = Permutations(total, rows, streams)

        def indices(step: int) -> Tensor:
            pool = math.ceil(self.share(step) * total)
            return ranked[number[usual(step)] * pool // total]

        return indices


def roughness(images: Tensor) -> Tensor:
    """(n,) float64: mean squared difference of neighbouring pixels, of (n,C,H,W) in any type; 0 for one pixel.

    The sum over bytes is exact, so it is equal on all machines.
    """
    x = images.double()
    squares = sum(x.diff(dim=dim).square().flatten(1).sum(1) for dim in (-1, -2))
    assert isinstance(squares, Tensor)
    return squares / x[0].numel()


def choose(order: ImageOrder, images: ImageSet, rows: int, streams: Streams) -> Indices:
    """The order of the images, whose results are checked."""
    indices, total = order.over(images, rows, streams), len(images)

    def checked(step: int) -> Tensor:
        ids = indices(step)
        fits = isinstance(ids, Tensor) and ids.dtype == torch.int64 and ids.shape == (rows,)
        if not fits or ids.min() < 0 or ids.max() >= total:
            raise WrongResult.of(order, "over", f"a function to ({rows},) int64 in 0..{total - 1}", ids)
        return ids

    return checked
