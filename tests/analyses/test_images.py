"""What is refused before images are generated."""

import pytest

from diffusion_lab.analyses import GradientVarianceByTimestep, RewardVariance
from diffusion_lab.analyses.images import check_solver
from diffusion_lab.data import GaussianMixture
from diffusion_lab.diffusion import BestHead, HardMin, HeadErrors, MixedPrediction, NativeSpace, PerSample
from diffusion_lab.solvers import DDIM, DDPM, Autoguided, AverageVelocity
from tests.analyses.models import Constant, source, trained


class Pictures(GaussianMixture):
    """Values in the range of images."""

    value_range = (-1.0, 1.0)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_leaves_the_range_of_images_is_not_clipped(depth):
    """However many solvers are around the one that clips: one rule for analyses, training and evaluation."""

    def around(solver):
        for _ in range(depth):
            solver = Autoguided(solver, trained(Constant(), source()).denoiser)
        return solver

    models = [trained(Constant(), Pictures([0.5], [0.25], image_size=4)), trained(Constant(), source())]
    key = "analysis.solver" + ".base" * depth
    with pytest.raises(ValueError, match=rf"^{key}.clip=true must be false with .*; use {key}.clip=false"):
        check_solver(around(DDPM()), models)
    assert str(around(DDPM()).clip_fault("solver", "latents", None)).startswith(key.removeprefix("analysis."))
    check_solver(around(DDPM(clip=False)), models)
    check_solver(around(DDIM(10)), models[:1])


def test_a_solver_of_another_model():
    with pytest.raises(ValueError, match=r"^analysis.solver._target_=AverageVelocity must .*use solver=euler"):
        check_solver(AverageVelocity(), [trained(Constant(), source())])


@pytest.mark.parametrize("analysis", [RewardVariance([[3]]), GradientVarianceByTimestep(3)])
def test_weights_of_the_bound_need_one_head(analysis):
    mixed = MixedPrediction(NativeSpace(), PerSample(), HardMin(), BestHead(), HeadErrors())
    models = [trained(Constant(heads=3), source(), mixed, step=step) for step in (1, 2)]
    with pytest.raises(ValueError, match="^prediction=MixedPrediction must have one head"):
        analysis.check(models)
