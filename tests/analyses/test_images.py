"""What is refused before images are generated."""

import pytest

from diffusion_lab.analyses.images import check_solver
from diffusion_lab.data import GaussianMixture
from diffusion_lab.solvers import DDIM, DDPM
from tests.analyses.models import Constant, source, trained


class Encoded(GaussianMixture):
    """Latents of other images."""

    def pixels(self):
        return source()


def test_latents_are_not_clipped():
    models = [trained(Constant(), source()), trained(Constant(), Encoded([0.5], [0.25], image_size=4))]
    with pytest.raises(ValueError, match=r"^analysis.solver.clip=true must be false with .*; use analysis.solver.clip"):
        check_solver(DDPM(), models)
    check_solver(DDPM(clip=False), models)
    check_solver(DDIM(10), models[:1])
