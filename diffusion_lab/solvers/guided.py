"""Classifier-free guidance around any solver."""

from __future__ import annotations

from diffusion_lab.arguments import check_number
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.diffusion.network_input import check_channels, check_interval
from diffusion_lab.solvers.base import Around, Solver
from diffusion_lab.solvers.spacing import Steps


class Guided(Around):
    """The sampling loop of `base` with the guided network (`diffusion.Guidance`); each guided call has twice the rows:

        out = out_null + scale (out_label - out_null)

    Reference: Ho and Salimans, "Classifier-free diffusion guidance", 2022, equation 6, with scale = 1 + w.

    With an interval only noise levels low < sigma_t/alpha_t <= high are guided; elsewhere out = out_label, in one call
    (Kynkäänniemi et al., "Applying guidance in a limited interval improves sample and distribution quality in diffusion
    models", 2024, arXiv 2404.07724). Guidance at high noise levels costs variety, at low ones it changes
    little. Differs from the paper where the noise levels of the steps are not its own: an end of the interval lies
    between two timesteps of the model.

    Use: with class-conditional models trained with label dropout, for better fidelity at the cost of variety; with an
    interval at a lower cost of both variety and time.

    Args:
        base: the solver whose network calls are guided.
        scale: strength of the guidance, >= 0; 1 is none. The 0.4 of U-ViT's paper is 1.4 here.
        steps: replaces the steps of the base; None keeps them.
        channels: number of channels of the image that are guided, the first ones; 3 in the published code of DiT and
            SiT; None: all.
        interval: [low, high], the noise levels sigma_t/alpha_t that are guided, in units of the images, which have
            values in [-1, 1], 0 <= low < high; None: all.

    Raises:
        ValueError: a scale, channels or an interval out of range; when called, a model that was trained without label
            dropout or has no noise level in the interval.
    """

    needs_null_label = True

    def __init__(
        self,
        base: Solver,
        scale: float = 1.5,
        steps: Steps | None = None,
        channels: int | None = None,
        interval: list[float] | None = None,
    ) -> None:
        super().__init__(base, steps)
        self.scale = check_number("scale", scale, "[)", 0, float("inf"), "use 1.5, or 1.0 for none")
        self.channels = check_channels(channels)
        self.interval = check_interval(interval)

    def describe(self) -> str:
        channels = "" if self.channels is None else f"-first{self.channels}"
        within = "" if self.interval is None else "-within{:g}-{:g}".format(*self.interval)
        return f"{self.base.describe()}-guided{self.scale:g}{channels}{within}"

    def check_model(self, denoiser: Denoiser) -> None:
        super().check_model(denoiser)
        if denoiser.null_label is not None:  # else it is refused with its data
            self.model(denoiser)

    def model(self, denoiser: Denoiser) -> Denoiser:
        return denoiser.guided(self.scale, self.channels, self.interval)
