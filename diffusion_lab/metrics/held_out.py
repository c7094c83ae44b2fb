"""The Fréchet distance to images that training never sees."""

from __future__ import annotations

from diffusion_lab.data import ImageDataModule
from diffusion_lab.metrics.fidelity import FrechetDistance
from diffusion_lab.metrics.image_sets import too_few
from diffusion_lab.metrics.metric import Given
from diffusion_lab.metrics.reference import Reference


class HeldOutFrechetDistance(FrechetDistance):
    """Fréchet distance of N samples to all images of the test split, which training never sees; at least 2 D of them.

    A model that copies comes nearer to its training images, and not to these. The two distances have no common zero: a
    distance to fewer real images is larger, also for a perfect model. Compare differences between models.
    """

    name, elsewhere = "test_fid", "test_fd"
    needs = frozenset({"moments", "held_out"})

    def __call__(self, given: Given) -> float | None:
        return super().__call__(given) if self._fault(given.model.data) is None else None

    def reference(self, given: Given) -> Reference:
        return given.held_out

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        super().check(num_samples, data)
        if fault := self._fault(data):
            raise ValueError(fault)

    def _fault(self, data: ImageDataModule) -> str | None:
        """Why it is not defined for these data."""
        return too_few(self.name, "test", len(data.source.pixels().test()), data.features)
