"""Generation of samples whose latents depend on (seed, sample id) alone.

Sample i starts from x_T(seed, i) and its solver's step k adds noise(seed, i, k), both standard normal and drawn on the
CPU for every device. The latents therefore do not depend on the batch size, the number of processes or the order, and
two models that are sampled with the same seed share all latents.

Evaluations use the seed of the run: methods are paired by seed, latents included, and the interval over seeds contains
the effect of the latents, as it must (Bouthillier et al. 2021, "Accounting for Variance in Machine Learning
Benchmarks", section 3: every source of variation that is not compared is randomised).

Only the network depends on the batch size: a convolution may round differently in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import NamedTuple, ParamSpec

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import check_integer
from diffusion_lab.data import to_uint8
from diffusion_lab.progress import progress as shown
from diffusion_lab.solvers import Solver
from diffusion_lab.streams import Streams

ConditionsOf = Callable[[Sequence[int]], dict[str, Tensor]]
ToPixels = Callable[[Tensor], Tensor]
P = ParamSpec("P")
# First number of a position in the stream "eval"; validation uses 0 and 1.
SAMPLES, SETS = 2, 3
PICTURES = 0  # seed of the latents of all grids of samples, so that they can be compared image by image


class Latents(NamedTuple):
    """Which latents an evaluation uses.

    Attributes:
        seed: of `SampleNoise`, >= 0.
        rule: where the seed comes from, as the protocol has it: equal for all runs whose values can be compared.
    """

    seed: int
    rule: int | str

    @classmethod
    def of_run(cls, seed: int, number: int = 0) -> Latents:
        """A set of latents of the runs with a seed: equal for all methods, different between seeds and sets.

        Args:
            seed: of the run, >= 0.
            number: of the set; 0 for the one that training evaluates.
        """
        if not number:
            return cls(seed, "the run's")
        return cls(Streams(seed).key("eval", SETS, number), f"the run's, set {number}")


def none(ids: Sequence[int]) -> dict[str, Tensor]:
    """Conditions of an unconditional model."""
    return {}


class SampleNoise:
    """The normal numbers of a batch of samples.

    Args:
        seed: the evaluation's seed, >= 0.
        ids: the samples' numbers.
        shape: of one sample's x_T, (C,H,W) for a diffusion model.
    """

    def __init__(self, seed: int, ids: Sequence[int], shape: tuple[int, ...]) -> None:
        self.streams, self.ids, self.shape = Streams(seed), ids, tuple(shape)

    def start(self) -> Tensor:
        """x_T (n,C,H,W), or (n, *shape), float32 on the CPU."""
        return self._rows(0, pinned=False)

    def __call__(self, k: int, like: Tensor) -> Tensor:
        """Noise of the solver's step k (0 = noisiest), with the shape, dtype and device of `like` (n,C,H,W)."""
        # From pinned memory the copy is asynchronous: the noise of the next steps is drawn while a GPU computes.
        return self._rows(k + 1, pinned=like.is_cuda).to(like, non_blocking=True)

    def _rows(self, position: int, pinned: bool) -> Tensor:
        rows = torch.empty(len(self.ids), *self.shape, pin_memory=pinned)
        for row, i in zip(rows, self.ids, strict=True):
            row.normal_(generator=self.streams.generator("cpu", "eval", SAMPLES, i, position))
        return rows


def generate_batches(
    denoiser: nn.Module,
    solver: Solver,
    ids: Sequence[int],
    seed: int,
    shape: tuple[int, int, int],
    batch_size: int = 64,
    device: torch.device | str | None = None,
    progress: bool = False,
    conditions: ConditionsOf = none,
    to_pixels: ToPixels = to_uint8,
) -> Iterator[Tensor]:
    """Generate the samples with the given ids, one batch at a time.

    Args:
        denoiser: the model, on `device`; a generator with the solver `OneCall`.
        solver: how to sample.
        ids: the samples' numbers, e.g. range(64).
        seed: the evaluation's seed.
        shape: (C,H,W).
        batch_size: samples at a time.
        device: device of the denoiser; None: where its weights are.
        progress: whether to show it.
        conditions: ids -> keywords for the network, one row per id, e.g. `Conditions.of_samples`.
        to_pixels: output of the model (n,C,H,W) -> bytes, e.g. `ImageSource.to_pixels`.

    Yields:
        (<= batch_size,C,H,W) uint8 on the CPU, in the shape of the pixels.

    Raises:
        ValueError: a sample is not finite.
    """
    check_integer("batch_size", batch_size, 1, "use 64")
    if device is None:
        device = next((weight.device for weight in denoiser.parameters()), torch.device("cpu"))
    many = len(ids) > batch_size  # over the samples, or over the solver's steps if there is one batch
    with shown("sampling", len(ids), "images", show=progress and many) as task:
        for start in range(0, len(ids), batch_size):
            rows = slice(start, start + batch_size)
            noise = SampleNoise(seed, ids[rows], solver.start_shape(denoiser, shape))
            cond = {key: value.to(device) for key, value in conditions(ids[rows]).items()}
            x_start = noise.start().to(device)
            x = solver(denoiser, x_start, noise=noise, progress=progress and not many, **cond)
            yield to_pixels(check_finite(x, ids[rows])).cpu()
            task.advance(len(x))


def _joined(batches: Callable[P, Iterator[Tensor]]) -> Callable[P, Tensor]:
    """The function with the arguments of `batches` that returns all batches as one tensor."""

    @wraps(batches)
    def joined(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        return torch.cat(list(batches(*args, **kwargs)))

    return joined


generate = _joined(generate_batches)  # (len(ids),C,H,W)


def check_finite(x: Tensor, ids: Sequence[int]) -> Tensor:
    """The samples (n,..) with these numbers; ValueError if one is not finite, which as a byte would be black."""
    good = torch.isfinite(x).flatten(1).all(1).cpu()
    if not good.all():
        bad = [i for i, fine in zip(ids, good.tolist(), strict=True) if not fine]
        raise ValueError(
            f"{len(bad)} of {len(x)} samples are not finite (ids {bad[:5]}); the model has diverged, or the network "
            "extrapolates while the solver's clip is off"
        )
    return x
