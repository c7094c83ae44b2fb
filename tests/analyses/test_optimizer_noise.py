"""Updates under several values of beta1."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from diffusion_lab.analyses import Interdependence, OptimizerNoise, Work
from diffusion_lab.analyses.weights.continued_training import noise_scale
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.annealing import MDLRC
from diffusion_lab.optimizers import Muon
from diffusion_lab.streams import Streams
from diffusion_lab.testing.analyses import tiny_update
from diffusion_lab.training import Continuation


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """(analysis, result) of a tiny model."""
    analysis = OptimizerNoise([0.9, 0.4], steps=20, warmup=8, batch_size=4, repeats=3)
    models = tiny_update()[:1]
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path_factory.mktemp("work"), Streams(0)))


def test_the_arrays_are_those_of_the_steps_after_the_warm_up(done):
    _, result = done
    data = result.data
    assert data["gram"].shape == (1, 3, 3, 3) and data["cosine"].shape == (1, 3, 3, 19)
    assert np.allclose(data["mean_cosine"], data["cosine"][..., 8:].mean((2, 3)))
    assert np.allclose(data["noise_scale"][0, 1], noise_scale(data["norm"][0, 1, :, 8:], data["gram"][0, 1])[0])
    assert [list(row) for row in data["beta1"][:2]] == [[0.9] * 20, [0.4] * 20]
    pairs = zip(data["lr_factor"][2], data["beta1"][2], strict=True)
    assert [tuple(pair) for pair in pairs] == [MDLRC(20)(k)[:2] for k in range(20)]


def test_less_momentum_gives_less_agreement_and_more_noise(done):
    _, result = done
    cosine, scale, norm = (result.data[key][0] for key in ("mean_cosine", "noise_scale", "mean_norm"))
    assert cosine[0] > cosine[1] and scale[0] < scale[1] and norm[0] < norm[1]


def test_a_sentence_that_begins_with_a_group_keeps_its_spelling(done):
    analysis, result = done
    assert analysis.sentence(result).startswith("The cosine")
    (group,) = result.facts["groups"]
    named = result._replace(facts=result.facts | {"groups": [group | {"name": "mdlrc"}]})
    assert analysis.sentence(named).startswith("mdlrc: the cosine")


def test_the_sentence_has_the_numbers_of_data(done):
    analysis, result = done
    said, data = analysis.sentence(result), result.data
    for s, name in enumerate(("\N{GREEK SMALL LETTER BETA}1 = 0.9", "\N{GREEK SMALL LETTER BETA}1 = 0.4", "MDLRC")):
        for key, error in (("mean_cosine", "cosine_error"), ("noise_scale", "noise_scale_error")):
            assert f"{plus_minus(data[key][0, s], 2 * data[error][0, s])} for {name}" in said
    assert "(Adam at 0.0002 without a state, so that its first steps have about equal size" in said
    assert len(analysis.figure(result).axes) == 3


def test_the_repeats_have_other_batches_and_the_settings_the_same(tmp_path):
    """With beta1 = 0 twice, all is equal to the bit."""
    analysis = OptimizerNoise([0.0, 0.0001], None, steps=3, warmup=0, batch_size=4)
    norm = analysis.run(tiny_update()[:1], Work(tmp_path, Streams(0))).data["norm"][0]
    again = OptimizerNoise([0.0], None, steps=3, warmup=0, batch_size=4)
    assert np.array_equal(norm[0], again.run(tiny_update()[:1], Work(tmp_path / "b", Streams(0))).data["norm"][0, 0])
    assert np.allclose(norm[0], norm[1], rtol=0.01) and not np.allclose(norm[0, 0], norm[0, 1], rtol=0.01)


def test_a_learning_rate_of_zero_has_no_cosine_and_says_so(tmp_path):
    analysis = OptimizerNoise([0.9], None, steps=4, warmup=1, batch_size=2, lr=0)
    result = analysis.run(tiny_update()[:1], Work(tmp_path, Streams(0)))
    assert not result.data["gram"].any()
    assert "not measurable for \N{GREEK SMALL LETTER BETA}1 = 0.9" in analysis.sentence(result)


def test_a_group_without_betas_has_its_momentum_set(tmp_path):
    """The check passed, and Muon's own group ended it with a KeyError."""
    (model, _) = tiny_update()
    model.continuation = Continuation(lambda p: Muon(p, lr=0.01))
    analysis = OptimizerNoise([0.9, 0.1], None, steps=6, warmup=2, batch_size=2, repeats=3)
    analysis.check([model])
    norm = analysis.run([model], Work(tmp_path, Streams(0))).data["mean_cosine"][0]
    assert np.isfinite(norm).all() and norm[0] != norm[1]


@pytest.mark.parametrize("analysis", [OptimizerNoise(), Interdependence(num_windows=4, shown=[2], images=2)])
def test_a_rate_that_an_annealing_has_brought_to_0_is_refused(analysis):
    """It measured the rounding of the weights, and concluded that windows help one another."""
    (model, _) = tiny_update()
    optimizer = model.continuation.optimizer(list(model.denoiser.parameters()), fresh=True)[0]
    for factor, refused in ((0.02, False), (0.005, True)):
        for group in optimizer.param_groups:
            group |= {"initial_lr": 2e-4, "lr": factor * 2e-4}
        model.continuation = replace(model.continuation, state=optimizer.state_dict)
        said = r"^run=tiny must have a rate that moves its weights, .* gives 1e-06, below 1 % of 0.0002; use"
        with pytest.raises(ValueError, match=said) if refused else nullcontext():
            analysis.check([model])
    analysis.fresh = True
    analysis.check([model])


def test_an_optimizer_without_beta1_is_refused():
    (model, _) = tiny_update()
    model.continuation = Continuation(lambda p: torch.optim.SGD(p, lr=0.1))
    with pytest.raises(ValueError, match="^run=tiny must have trained with an optimizer with beta1, and did with SGD"):
        OptimizerNoise().check([model])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"beta1": [1.0]}, "^beta1=1.0 must"),
        ({"beta1": [], "mdlrc": None}, r"^beta1=\[\] must have a value"),
        ({"floor": 0.9}, "^floor=0.9 must"),
        ({"warmup": 59}, "^warmup=59 must"),
        ({"repeats": 2}, "^repeats=2 must"),
        ({"lr": -0.1}, "^lr=-0.1 must"),
    ],
)
def test_arguments_out_of_range(given, message):
    with pytest.raises(ValueError, match=message):
        OptimizerNoise(**given)
