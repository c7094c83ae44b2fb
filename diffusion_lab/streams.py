"""Random numbers as a pure function of (seed, stream, position).

Every number that a run draws is named by

    seed      the run's seed, or that of the stream,
    stream    its purpose: "init", "order", "augment", "timesteps", "rewards", "noise", "dropout", "auxiliary", "eval",
    position  integers such as the optimizer step, the number of a draw, or the id of a sample.

The numbers do not depend on how many were drawn before. A run can therefore be stopped and continued at any step, and
two methods with the same seed see the same images and the same noise even if one of them draws more timesteps.

The key of a draw is the first 63 bits of BLAKE2b("seed/stream/position"). The CPU generator of PyTorch keeps 32
of them, so in a run of 500,000 steps about 30 pairs of steps share their noise, which is harmless. Different streams
have different hashed texts.

Differs from NVlabs/edm2 `set_random_seed(seed, rank, cur_nimg)`: the rank is not part of the key, because numbers
are drawn for the whole global batch and each process takes its rows; so the number of processes changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer


class Position(NamedTuple):
    """The position of a microbatch: optimizer step, process, and microbatch within the update; `first` and `here` are
    the images of the update's first microbatch and of this one, since the last may have fewer."""

    step: int
    rank: int = 0
    world_size: int = 1
    micro: int = 0
    accumulate: int = 1
    first: int = 0
    here: int = 0

    def rows(self, n: int) -> slice:
        """The rows of the global batch that are the n rows of this process and microbatch."""
        start = (self.micro * self.world_size + self.rank) * self._of_first(n)
        return slice(start, start + n)

    def global_rows(self, n: int) -> int:
        """Rows of the global batch, G, if each process and microbatch has n, or has as many as the first."""
        return self._of_first(n) * self.world_size * self.accumulate

    def _of_first(self, n: int) -> int:
        """Rows of the first microbatch where this one has n, be they images, or patches or parts of them."""
        return -(-n * self.first // self.here) if self.here < self.first else n


class Streams:
    """Named streams of random numbers of one run.

    Args:
        seed: the run's seed, an integer >= 0.
        own: stream -> a seed of its own, so that e.g. the noise of two runs is equal and the rest is not; a stream
            without one, or with None, has the run's.

    Raises:
        ValueError: a seed is negative or not an integer.
    """

    def __init__(self, seed: int, own: Mapping[str, int | None] | None = None) -> None:
        check_integer("seed", seed, 0, "use seed=0 for the default run")
        self.seed = seed
        self._own = {stream: number for stream, number in (own or {}).items() if number is not None}
        for stream, number in self._own.items():
            check_integer(f"stream_seeds.{stream}", number, 0, "use null for the run's seed")
        self._generators: dict[torch.device, torch.Generator] = {}

    def key(self, stream: str, *position: int) -> int:
        """63-bit key of one position of one stream."""
        seed = self._own.get(stream.partition("-")[0], self.seed)  # "noise-1" has further numbers of the source "noise"
        text = "/".join((str(seed), stream, *map(str, position)))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1

    def generator(self, device: torch.device | str, stream: str, *position: int) -> torch.Generator:
        """A generator on `device`, seeded with `key(stream, *position)`; valid until the next call for that device."""
        device = torch.device(device)
        generator = self._generators.get(device)
        if generator is None:
            generator = self._generators[device] = torch.Generator(device)
        return generator.manual_seed(self.key(stream, *position))

    def uniform(self, n: int, stream: str, *position: int, device: torch.device | str = "cpu") -> Tensor:
        """(n,) float64 in [0, 1)."""
        generator = self.generator(device, stream, *position)
        return torch.rand(n, dtype=torch.float64, device=device, generator=generator)

    def normal(self, shape: tuple[int, ...], stream: str, *position: int, device: torch.device | str = "cpu") -> Tensor:
        """Standard normal float32 numbers of the given shape."""
        return torch.randn(shape, device=device, generator=self.generator(device, stream, *position))


class HostStreams(Streams):
    """The numbers of the host's generators on every device, where `Streams` draws with the device's own."""

    def uniform(self, n: int, stream: str, *position: int, device: torch.device | str = "cpu") -> Tensor:
        return super().uniform(n, stream, *position).to(device)

    def normal(self, shape: tuple[int, ...], stream: str, *position: int, device: torch.device | str = "cpu") -> Tensor:
        return super().normal(shape, stream, *position).to(device)
