"""Any solver with classifier-free guidance."""

from __future__ import annotations

from torch import Tensor

from diffusion_lab.arguments import check_made, check_number
from diffusion_lab.diffusion import Denoiser, NoiseSchedule
from diffusion_lab.diffusion.guidance import check_channels
from diffusion_lab.solvers.base import Bar, Noise, Solver
from diffusion_lab.solvers.respacing import Steps


class Guided(Solver):
    """The sampling loop of `base` with the guided network, see `diffusion.Guidance`; each call has twice the rows.

    Reference: Ho and Salimans, "Classifier-free diffusion guidance", 2022, equation 6, with scale = 1 + w.

    Use: class-conditional models, where fidelity is wanted at the cost of variety.

    Args:
        base: the solver.
        scale: of the guidance, >= 0; 1 is none.
        steps: replaces the base's; None keeps them.
        channels: largest number of the image's channels that are guided, the first ones; None: all.

    Raises:
        ValueError: a scale or channels out of range; when called, a model that was trained without label dropout.
    """

    needs_null_label = True

    def __init__(
        self, base: Solver, scale: float = 1.5, steps: Steps | None = None, channels: int | None = None
    ) -> None:
        check_made("base", base, Solver, "use one such as DDIM(steps=50)")
        self.base = base if steps is None else base.with_steps(steps)
        self.scale = check_number("scale", scale, "[)", 0, float("inf"), "use 1.5, or 1.0 for none")
        self.channels = check_channels(channels)

    def check(self, schedule: NoiseSchedule) -> None:
        self.base.check(schedule)

    def describe(self) -> str:
        channels = "" if self.channels is None else f"-first{self.channels}"
        return f"{self.base.describe()}-guided{self.scale:g}{channels}"

    def solve(self, denoiser: Denoiser, x_T: Tensor, noise: Noise, bar: Bar, cond: dict[str, Tensor]) -> Tensor:
        return self.base.solve(denoiser.guided(self.scale, self.channels), x_T, noise, bar, cond)
