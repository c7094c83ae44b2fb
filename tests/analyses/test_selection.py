"""R^2 of the drop on S, where the drops are known, and S at each policy update as the sampler itself had it."""

import copy

import numpy as np
import pytest
import torch

from diffusion_lab.analyses import Selection, Work
from diffusion_lab.analyses.policy.policy_updates import (
    evenly_spaced,
    history,
    jackknife_r2,
    r_squared,
    read_queue,
    selection_at,
)
from diffusion_lab.analyses.words import plus_minus
from diffusion_lab.diffusion import bound_weights, linear
from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import LearnedBeta
from diffusion_lab.timesteps.grid import masses
from tests.analyses.models import Constant, half_width, source, trained

T, QUEUE = 50, 8  # the default grid has all 50 timesteps
D = 16


def weights():
    one = trained(Constant(0.0), source()).denoiser
    return bound_weights(one.schedule, one.prediction, one.variance)


def sampler():
    one = LearnedBeta(T, weights(), num_selected=3, queue=QUEUE)
    one.setup((1, 8, 8))
    return one


def run(rows, at, values=None, folder="run", seed=0, **config):
    """Checkpoints of a run, after each number of rows in `at`, as the sampler's own `_select` leaves its state."""
    made, one = [], sampler()
    node = {"sampler": {"select_from": 5, "every": 40, "reward_every": 4}, "seed": seed} | config
    for j, row in enumerate(rows):
        one._select(row)
        if j + 1 in at:
            value = 0.1 if values is None else values[len(made)]
            model = trained(Constant(value), source(), step=40 * (j + 1), folder=folder)
            model.config.update(node)
            model.sampler = {key: copy.deepcopy(v) for key, v in one.state_dict().items()}
            made.append(model)
    return made


def random_rows(count, seed=0):
    return torch.randn(count, T, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def measured(models, folder, **given):
    analysis = Selection(**({"sizes": [1, 3, 10], "images": 16} | given))
    analysis.check(models)
    return analysis, analysis.run(models, Work(folder, Streams(0)))


def test_s_at_each_update_is_the_samplers_own():
    rows, one = random_rows(24), sampler()
    kept = [read_queue(model) for model in run(rows, at=(8, 16, 24))]
    known = history(kept)
    assert list(known) == list(range(24)) and all(torch.equal(known[j], rows[j]) for j in range(24))
    for j, row in enumerate(rows):
        assert torch.equal(selection_at(j, known, kept[0], 3), one.selected), j
        one._select(row)


def test_rows_that_no_checkpoint_has_leave_s_unknown():
    kept = [read_queue(model) for model in run(random_rows(30), at=(8, 30))]
    known = history(kept)
    assert sorted(known) == [*range(8), *range(22, 30)]
    assert selection_at(8, known, kept[0], 3) is not None and selection_at(25, known, kept[0], 3) is None
    assert torch.equal(selection_at(30, known, kept[0], 3), kept[1].selected)


def test_one_timestep_that_decides_the_bound_is_found_and_predicts_all_of_it(tmp_path):
    """Only the loss at t = 30 changes, so that S has it and R^2 = 1. Evenly spaced timesteps have it if they hit it:
    of 1, 3 and 10 in 50 these are t = 25; 8, 25, 41; 2, 7, .., 47."""
    rows = torch.zeros(16, T, dtype=torch.float64)
    rows[:, 30] = random_rows(16)[:, 0]
    _, result = measured(run(rows, at=(8, 16)), tmp_path)
    assert result.data["r2_next"][0, :, 0] == pytest.approx(1)
    assert np.isnan(result.data["r2_next"][0, :, 1]).all()  # these drops do not vary
    later = result.data["selected"][0, 5:]
    assert (later == 30).any(1).all()
    (group,) = result.facts["groups"]
    assert group["often"][0] in (0, 1, 2, 30)
    c = weights().numpy()[30]
    assert np.allclose(result.data["drop"][0, :16], c * rows[:, 30].numpy())
    assert np.isnan(result.data["drop"][0, 16])  # after the last checkpoint


def test_checkpoints_farther_apart_than_the_queue(tmp_path):
    """S after each checkpoint is known, the drop of no update that used a known S; the intervals are."""
    models = run(random_rows(40), at=(24, 40), values=(0.1, 0.2))
    analysis, result = measured(models, tmp_path)
    steps, selected = result.data["step"][0], result.data["selected"][0]
    assert {k: selected[steps == 40 * k].ravel().tolist() for k in (24, 40)} == {
        k: read_queue(model).selected.tolist() for k, model in zip((24, 40), models, strict=True)
    }
    assert (selected >= 0).all(1).sum() == 2 and np.isnan(result.data["r2_next"]).all()
    assert np.isfinite(result.data["r2_interval"]).all()
    analysis.figure(result)
    assert "a part that too few known updates tell of the bound's drop" in analysis.sentence(result)


def test_the_next_update_is_no_update_that_s_was_chosen_from(tmp_path):
    """Rows of independent numbers: the timesteps correlate with the total by chance, and not with the next one beyond
    their own part c_t^2 / sum c^2 of its variance."""
    rows = torch.randn(160, T, dtype=torch.float64, generator=torch.Generator().manual_seed(2)) / weights()
    _, result = measured(run(rows, at=range(8, 161, 8)), tmp_path, sizes=[1, 25])
    r2, error = result.data["r2_next"][0], result.data["r2_next_error"][0]
    assert abs(r2[2, 1] - 25 / 50) < 4 * error[2, 1]  # evenly spaced: exactly half of the terms
    assert abs(r2[2, 0] - 25 / 50) < 4 * error[2, 0]
    assert r2[1, 0] < 0.2  # one of 50 terms


def test_the_next_interval_is_the_change_of_the_models_losses(tmp_path):
    """A network that answers b has E = mean (eps - b)^2: from b to b' the drop is 2 (b' - b) mean eps - b'^2 + b^2 at
    all timesteps, so that any of them predicts the bound's exactly."""
    _, result = measured(run(random_rows(16), at=(8, 12, 16), values=[0.0, 0.5, 0.7]), tmp_path)
    assert np.allclose(result.data["r2_interval"][0], 1) and np.allclose(
        result.data["r2_interval_error"][0], 0, atol=1e-6
    )


def test_r_squared_and_its_jackknife():
    draw = np.random.default_rng(0)
    found, errors = [], []
    for _ in range(100):
        x = draw.normal(size=(40, 1, 2))
        y = x[:, 0, 0] + draw.normal(size=40)  # R^2 = 1/2 of the first, 0 of the second
        r2, error = jackknife_r2(x, y)
        assert r2[0, 0] == pytest.approx(np.corrcoef(x[:, 0, 0], y)[0, 1] ** 2)
        found.append(r2[0])
        errors.append(error[0])
    mean = np.mean(found, 0)
    assert mean[0] == pytest.approx(0.5, abs=0.03) and mean[1] == pytest.approx(1 / 39, abs=0.02)
    assert np.mean(errors, 0)[0] == pytest.approx(np.std(found, 0)[0], rel=0.25)
    assert np.isnan(jackknife_r2(np.ones((3, 1, 2)), np.ones(3))[0]).all()
    assert np.isnan(r_squared(np.ones(5), np.arange(5.0)))
    assert evenly_spaced(50, 10).tolist() == list(range(2, 50, 5))


def test_rows_of_calls_and_the_sentence(tmp_path):
    analysis, result = measured(run(random_rows(24), at=(8, 16, 24), values=[0.0, 0.5, 0.7]), tmp_path)
    rewarded = 2  # every fourth of 8 rows
    assert result.data["size"][0].tolist() == [3, 1, 3, 10]
    assert result.data["rows"][0].tolist() == [2 * (50 + rewarded * size) for size in (3, 1, 3, 10)]
    said, data = analysis.sentence(result), result.data
    own, interval = ((data[key][0, 0, 0], 2 * data[f"{key}_error"][0, 0, 0]) for key in ("r2_next", "r2_interval"))
    assert f"R\N{SUPERSCRIPT TWO} = {plus_minus(*own)} of the bound's drop in the next update" in said
    assert f"and {plus_minus(*interval)} in the next interval" in said
    assert said.endswith("(\N{PLUS-MINUS SIGN}: two standard errors over updates, and over intervals).")
    chosen = data["selected"][0]
    assert f"median at t = {int(np.median(chosen[chosen >= 0]))} " in said
    assert analysis.figure(result).axes


def test_seconds_are_those_of_the_runs_own_rate(tmp_path):
    """300 images a second, of which a forward pass takes a third: 900 rows a second; rows where it is not known."""
    models = run(random_rows(16), at=(8, 16), folder=str(tmp_path / "run"))
    analysis, result = measured(models, tmp_path / "a")
    assert result.facts["groups"][0]["seconds_per_row"] is None
    assert analysis.figure(result).axes[1].get_xlabel() == "policy update, rows of network calls"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "timing.jsonl").write_text('{"step": 9, "images": 600, "seconds": 2.0}\n')
    analysis, result = measured(models, tmp_path / "b")
    axis = analysis.figure(result).axes[1]
    assert axis.get_xlabel() == "policy update, seconds (estimated)"
    drawn = {float(x) for line in axis.lines for x in line.get_xdata()}
    assert drawn == {rows / 900 for rows in result.data["rows"][0]}


def test_seeds_are_one_group(tmp_path):
    models = [
        model for seed in range(2) for model in run(random_rows(16, seed), at=(8, 16), folder=f"a-s{seed}", seed=seed)
    ]
    analysis, result = measured(models, tmp_path)
    (group,) = result.facts["groups"]
    assert group["members"] == [0, 1]
    said = analysis.sentence(result)
    own, spaced = result.data["r2_next"][:, 0].T
    assert f"= {plus_minus(own.mean(), half_width(own))} of the bound's drop in the next update" in said
    assert f"evenly spaced ones explain {plus_minus(spaced.mean(), half_width(spaced))}, and" in said
    assert said.endswith("(\N{PLUS-MINUS SIGN}: 95 % intervals over 2 seeds).")
    first, *_ = analysis.figure(result).axes[1].containers[0].lines[2][0].get_segments()
    assert np.ptp(first[:, 1]) == pytest.approx(2 * half_width(result.data["r2_next"][:, 1, 0]))


def test_what_cannot_be_analyzed_is_refused():
    models = run(random_rows(16), at=(8, 16))

    def check(words, some, **given):
        with pytest.raises(ValueError, match=words):
            Selection(**({"sizes": [1], "images": 16} | given)).check(some)

    check(
        "run=run must be trained with the learned Beta sampler; use sampler=learned_beta",
        [trained(Constant(), source())],
    )
    check("checkpoint=320 must be at least two of run; use checkpoint=", models[:1])
    check("analysis.images=65 must be at most the 64 training images", models, images=65)
    check(r"analysis.sizes=\[51\] must be at most 50", models, sizes=[51])
    averaged = [trained(Constant(), source(), step=step, decay=0.9) for step in (1, 2)]
    for one, model in zip(averaged, models, strict=True):
        one.sampler = model.sampler
    check("weights=ema must be raw", averaged)
    for key, value in (("changes", torch.zeros(8, 7)), ("selected", torch.tensor([50])), ("totals", torch.ones(8))):
        broken = [copy.copy(model) for model in models]
        broken[0].sampler = dict(models[0].sampler) | {key: value}
        check("must have a queue of its own grid and bound", broken)


def test_the_state_is_that_of_the_run(tmp_path):
    """The sum of a row is the queue's with the weights of the model's own bound."""
    (model,) = run(random_rows(6), at=(6,))
    queue = read_queue(model)
    assert queue.filled == 6 and torch.allclose(queue.changes @ masses(weights(), queue.grid), queue.totals)
    assert torch.equal(queue.weights, weights()) and linear(T).num_timesteps == len(queue.weights)


@pytest.mark.parametrize("given", [{"sizes": []}, {"sizes": [3, 1]}, {"sizes": [0]}, {"images": 2}, {"batch_size": 0}])
def test_arguments_out_of_range(given):
    with pytest.raises(ValueError, match=f"^{next(iter(given))}=.* must"):
        Selection(**given)
