"""Contract tests for your own parts: call them from pytest with a function that makes the part.

    def test_mine():
        check_sampler(lambda: Late(num_timesteps=100))

Each raises an AssertionError that names the violated rule. None needs a GPU or a trained model.
"""

from diffusion_lab.testing.analyses import check_analysis, tiny_update
from diffusion_lab.testing.predictions import (
    Noised,
    answers,
    check_prediction,
    check_prediction_inverse,
    check_prediction_parts,
    check_prediction_purity,
    check_prediction_resume,
    check_prediction_shapes,
    noised,
    observe_answers,
)
from diffusion_lab.testing.samplers import (
    check_draws,
    check_marginal,
    check_probabilities,
    check_resume,
    check_sampler,
    check_split,
    check_weights,
    context_of,
    draw_at,
    observe_updates,
)
from diffusion_lab.testing.synthetic import SyntheticProbe, images, same, state_of
from diffusion_lab.testing.weightings import (
    check_native_weights,
    check_normalization,
    check_one_loss,
    check_purity,
    check_weighting,
    check_weighting_resume,
    weighted_loss,
)

__all__ = [
    "Noised",
    "SyntheticProbe",
    "answers",
    "check_analysis",
    "check_draws",
    "check_marginal",
    "check_native_weights",
    "check_normalization",
    "check_one_loss",
    "check_prediction",
    "check_prediction_inverse",
    "check_prediction_parts",
    "check_prediction_purity",
    "check_prediction_resume",
    "check_prediction_shapes",
    "check_probabilities",
    "check_purity",
    "check_resume",
    "check_sampler",
    "check_split",
    "check_weighting",
    "check_weighting_resume",
    "check_weights",
    "context_of",
    "draw_at",
    "images",
    "noised",
    "observe_answers",
    "observe_updates",
    "same",
    "state_of",
    "tiny_update",
    "weighted_loss",
]
