"""What is refused before images are generated."""

import pytest

from diffusion_lab.analyses import GradientVarianceByTimestep, RewardVariance
from diffusion_lab.analyses.images import check_solver
from diffusion_lab.data import GaussianMixture
from diffusion_lab.diffusion import BestHead, HardMin, HeadErrors, MixedPrediction, NativeSpace, PerSample
from diffusion_lab.solvers import DDIM, DDPM, AverageVelocity
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


def test_a_solver_of_another_model():
    with pytest.raises(ValueError, match=r"^analysis.solver._target_=AverageVelocity must .*use solver=euler"):
        check_solver(AverageVelocity(), [trained(Constant(), source())])


@pytest.mark.parametrize("analysis", [RewardVariance([[3]]), GradientVarianceByTimestep(3)])
def test_weights_of_the_bound_need_one_head(analysis):
    mixed = MixedPrediction(NativeSpace(), PerSample(), HardMin(), BestHead(), HeadErrors())
    models = [trained(Constant(heads=3), source(), mixed, step=step) for step in (1, 2)]
    with pytest.raises(ValueError, match="^prediction=MixedPrediction must have one head"):
        analysis.check(models)
