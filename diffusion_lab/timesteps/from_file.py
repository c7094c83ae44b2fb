"""A timestep sampler whose probabilities are given as numbers, in practice those of a file."""

from __future__ import annotations

import torch

from diffusion_lab.arguments import ReadPath, check_integer
from diffusion_lab.timesteps.base import FixedSampler

ROUNDING = 1e-9  # a sum this near to 1 is a distribution as it was written, and its numbers are kept to the bit


class FromFile(FixedSampler):
    """p_t is the number number t of a file, divided by their sum unless it is 1 up to rounding.

    The configuration reads the file (`distribution_file`) and the run records the numbers: a run does not depend on the
    file afterwards, a changed file is another run, and what reads a run's folder reads no file that the folder names.

    Use: a distribution that was found elsewhere: by `show --write`, by another trainer, or from a pilot run.

    Args:
        num_timesteps: T.
        path: the file, for messages.
        probabilities: its T numbers, the least noisy timestep first; or what is wrong with it, as a text.
        reweight: whether the loss carries 1/(T p_t).

    Raises:
        ValueError: the file is at fault or does not hold T numbers.
    """

    def __init__(
        self, num_timesteps: int, path: ReadPath | None, probabilities: list[float] | str, reweight: bool = False
    ) -> None:
        check_integer("num_timesteps", num_timesteps, 1, "use 1000 as most papers do")
        cure = "write one with diffusion-lab show sampler=... --write FILE"
        if isinstance(probabilities, str):
            raise ValueError(f"path={path} must be a file of T numbers, and it {probabilities}; {cure}")
        if len(probabilities) != num_timesteps:
            held = f"T={num_timesteps} numbers, one per line, and it holds {len(probabilities)}"
            raise ValueError(f"path={path} must hold {held}; {cure} for this schedule")
        p = torch.tensor(probabilities, dtype=torch.float64)
        super().__init__(p, reweight)
        if abs(float(p.sum()) - 1) < ROUNDING:
            self._p.copy_(p)
            self._cdf.copy_(p.cumsum(0))
