"""Just image transformers (Li and He 2025, arXiv 2511.13720): the network answers x0, the loss is that of velocity."""

from torch import Tensor

from diffusion_lab.diffusion import Weighting


class OfVelocity(Weighting):
    """1/sigma^2 of the straight path on the x0-loss, with sigma = 1/(1 + sqrt(SNR)) at least `least`."""

    def __init__(self, least: float = 0.05, normalize: str = "none") -> None:
        super().__init__(normalize)
        self.least = least

    def x0_weight(self, snr: Tensor, step: int) -> Tensor:
        return (1 + snr.sqrt()).clamp(max=1 / self.least).square()
