"""The variance of the reward, where it is known.

A network that answers the number b has E(b) = mean((eps - b)^2) over D pixels, so that the reward of an update from 0
to b is, with common noise, c (2 b mean(eps) - b^2), of variance c^2 4 b^2 / D, and with fresh noise c times the
difference of two independent means, of variance c^2 (2 + 2 + 4 b^2) / D.
"""

import numpy as np
import pytest

from diffusion_lab.analyses import Result, RewardVariance, Work
from diffusion_lab.diffusion import bound_weights, linear
from diffusion_lab.streams import Streams
from tests.analyses.models import Constant, Copy, source, trained

D, NOISES, IMAGES = 16, 200, 20


def update(b, **second):
    data, schedule = source(), linear(50)
    return [
        trained(Constant(0.0), data, schedule=schedule, step=1),
        trained(Constant(b), data, schedule=schedule, **({"step": 2} | second)),
    ]


def measured(models, tmp_path, selected=([3], [30])):
    analysis = RewardVariance(selected, images=IMAGES, noises=NOISES)
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path / "pieces", Streams(0)))


def test_common_and_fresh_noise_have_the_variances_of_the_closed_form(tmp_path):
    b, models = 0.1, update(0.1)
    _, result = measured(models, tmp_path)
    d = models[0].denoiser
    c = bound_weights(d.schedule, d.prediction, d.variance)[[3, 30]].numpy()
    variance = np.array(result.facts["standard_deviation"]) ** 2
    fresh, common = c**2 * (4 + 4 * b**2) / D, c**2 * 4 * b**2 / D
    # 4,000 rewards: the relative standard error of a variance is sqrt(2/4000) = 2 %, up to the tails of chi-square
    for column, expected in enumerate((fresh, fresh, common, common)):
        assert np.allclose(variance[:, column], expected, rtol=0.15)
    assert np.allclose(result.facts["mean"], np.outer(c, [-(b**2)] * 4), atol=5 * np.sqrt(fresh.max() / 4000))
    assert np.allclose([row[-1] for row in result.facts["first_over_each"]], fresh / common, rtol=0.2)


def test_the_variance_is_that_over_noises_and_not_over_images(tmp_path):
    """A network that answers b x_t, x_t = alpha x0 + sigma eps, in place of 0. With common noise the reward is
    c (A mean(eps^2) + B mean(eps x0) - (b alpha)^2 mean(x0^2)), A = 1 - (1 - b sigma)^2, B = 2 (1 - b sigma) b alpha:
    its last term differs between images and not between noises."""
    b, data, schedule = 3.0, source(), linear(50)
    models = [trained(network, data, schedule=schedule, step=k) for k, network in enumerate((Constant(0.0), Copy(b)))]
    _, result = measured(models, tmp_path, [[0]])
    d, a = models[0].denoiser, float(schedule.alphas_cumprod[0])
    c, alpha, sigma = float(bound_weights(d.schedule, d.prediction, d.variance)[0]), a**0.5, (1 - a) ** 0.5
    squares = models[0].data.reference("train", IMAGES).square().mean((1, 2, 3)).numpy()
    factor, product = 1 - (1 - b * sigma) ** 2, 2 * (1 - b * sigma) * b * alpha
    within = c**2 * (2 * factor**2 + product**2 * squares.mean()) / D
    between = c**2 * (b * alpha) ** 4 * squares.var(ddof=1)
    assert between > within / 2  # so that the one cannot be taken for the other
    assert result.facts["standard_deviation"][0][3] ** 2 == pytest.approx(within, rel=0.1)


def test_an_update_that_changes_nothing_has_no_reward_under_common_noise(tmp_path):
    analysis, result = measured(update(0.0), tmp_path, [[3]])
    rewards = result.data["rewards"]
    assert (rewards[0, 2:] == 0).all() and (rewards[0, :2] != 0).all()
    assert "infinitely many times smaller" in analysis.sentence(result)
    assert analysis.figure(result).axes


def test_a_set_is_the_sum_over_its_timesteps(tmp_path):
    """With noise of another pair each, so the variances add up."""
    _, result = measured(update(0.1), tmp_path, [[3], [3, 4]])
    one, two = (row[1] ** 2 for row in result.facts["standard_deviation"])
    d = update(0.1)[0].denoiser
    c = bound_weights(d.schedule, d.prediction, d.variance)
    assert two / one == pytest.approx(float(1 + (c[4] / c[3]) ** 2), rel=0.15)


def test_the_sentence_gives_the_range_of_both_ratios():
    facts = {
        "standard_deviation": [[3.0, 2.0, 1.0, 0.5], [8.0, 2.0, 1.0, 0.2]],
        "mean": [[9.0, 9.0, 9.0, -0.1], [9.0, 9.0, 9.0, 0.02]],
        "first_over_each": [[1.0, 2.25, 9.0, 36.0], [1.0, 16.0, 64.0, 1600.0]],
    }
    said = RewardVariance([[3]]).sentence(Result({}, facts))
    assert "is 36 to 1,600 times smaller" in said and "is 30 to 400 times the mean reward." in said


def test_what_the_figure_draws():
    heights = [[4.0, 3.0, 2.0, 1.0], [0.4, 0.3, 0.2, 0.1]]
    facts = {"standard_deviation": heights, "selected": [[3], [4, 5]], "estimators": list("abcd"), "units": "bits/dim"}
    facts |= {"steps": [1, 2], "noises": 64, "images": 32}
    (axis,) = RewardVariance([[3]]).figure(Result({}, facts)).axes
    drawn = np.array([[bar.get_height() for bar in bars] for bars in axis.containers])
    assert np.array_equal(drawn.T, heights)
    assert [label.get_text() for label in axis.get_xticklabels()] == ["S = {3}", "S = {4, 5}"]


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (lambda: update(0.1)[:1], "checkpoint=run:1 must be one run before and after an update"),
        (lambda: update(0.1)[::-1], "checkpoint=run:2,run:1 must be one run before and after"),
        (lambda: update(0.1, folder="other"), "checkpoint=run:1,other:2 must be one run"),
        (lambda: update(0.1, decay=0.9), "weights=ema must be raw"),
    ],
)
def test_what_is_no_update_is_refused(models, words):
    with pytest.raises(ValueError, match=words):
        RewardVariance([[3]]).check(models())


def test_timesteps_that_the_run_does_not_have():
    with pytest.raises(ValueError, match=r"analysis.selected=\[\[3\], \[50\]\] must be timesteps below 50"):
        RewardVariance([[3], [50]]).check(update(0.1))


@pytest.mark.parametrize("given", [{"selected": []}, {"selected": [[]]}, {"selected": [[-1]]}, {"noises": 1}])
def test_arguments_out_of_range(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}=.* must be"):
        RewardVariance(**({"selected": [[3]]} | given))
