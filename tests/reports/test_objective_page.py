"""The study of objective and variance: its sampler, and the statistics of its page."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from diffusion_lab.cli.main import main
from diffusion_lab.diffusion import P2, ConstantEps, MinSNR, cosine
from diffusion_lab.testing import check_sampler
from diffusion_lab.timesteps import LogitNormal
from experiments import objective_page, objective_values
from experiments.objective.split import OBJECTIVES, SPLITS, Split
from experiments.objective_values import FOLDER, shares, slopes
from experiments.study_cells import rows
from tests.harness import Child

SCHEDULE = cosine(100)
T = torch.arange(100)
MEASURED = ([0, 20, 99], [3.0, 1.0, 0.5])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_all_divisions_have_one_objective_and_optimal_the_least_second_moment(objective: str) -> None:
    parts = {split: Split(SCHEDULE, objective, split, *MEASURED) for split in SPLITS}
    objectives = [part.probabilities(0) * part.weight(T, 0).double() for part in parts.values()]
    for one in objectives:
        torch.testing.assert_close(one, objectives[0], rtol=1e-6, atol=0)
        assert float(one.sum()) == pytest.approx(1)
    assert parts["w"].probabilities(0).unique().numel() == 1
    torch.testing.assert_close(parts["p"].weight(T, 0), torch.ones(100))
    g = torch.from_numpy(np.exp(np.interp(range(100), MEASURED[0], np.log(MEASURED[1]))))
    moments = {split: part.second_moment for split, part in parts.items()}
    assert moments["optimal"] == pytest.approx(float((objectives[0] * g).sum() ** 2))
    assert min(moments, key=lambda split: moments[split]) == "optimal"


def test_the_objectives_are_those_of_the_weightings() -> None:
    scale = 1 + SCHEDULE.snr
    weightings = {"eps": ConstantEps(), "min_snr": MinSNR(), "p2": P2()}
    wanted = {name: one.native_weight(SCHEDULE.snr, scale, 0) for name, one in weightings.items()}
    wanted |= {"v": torch.ones(100).double(), "logit_normal": LogitNormal(100).probabilities(0)}
    for name, q in wanted.items():
        found = Split(SCHEDULE, name, "p", *MEASURED).probabilities(0)
        torch.testing.assert_close(found, q.double() / q.double().sum(), rtol=1e-5, atol=1e-12)


def test_the_sampler_draws_what_it_says_and_resumes() -> None:
    check_sampler(lambda: Split(SCHEDULE, "min_snr", "optimal", *MEASURED), num_timesteps=100)


def test_slopes_within_objectives() -> None:
    random = np.random.default_rng(0)
    moments = random.normal(size=(5, 4))
    level = 10 * random.normal(size=(5, 1, 8)) + random.normal(size=8)  # of objectives and seeds
    true = np.arange(8.0)
    np.testing.assert_allclose(slopes(level + true * moments[:, :, None], moments), true, atol=1e-12)


def test_shares_of_objectives_divisions_and_noise() -> None:
    random = np.random.default_rng(0)
    objectives, divisions = np.array([0.0, 1, 2, 3, 4])[:, None], np.array([-1.0, 1, -1, 1])
    still = np.repeat((objectives + divisions)[:, :, None], 8, 2) + random.normal(size=8)
    found = shares(still)
    assert found.objectives == pytest.approx(40 / 60) and found.noise == pytest.approx(0)
    assert found.interval.mean == pytest.approx(40 / 60)
    still[0, 1] = math.nan  # a cell that is not trained: 19 means, of which objective 0 has three
    mean = still.mean(2)
    own, grand = np.nanmean(mean, 1), np.nanmean(mean)
    between, within = (([3, 4, 4, 4, 4] * (own - grand) ** 2).sum(), np.nansum((mean - own[:, None]) ** 2))
    assert shares(still).objectives == pytest.approx(between / (between + within))
    moments = np.where(np.isnan(mean), math.nan, mean - own[:, None])
    np.testing.assert_allclose(slopes(np.where(np.isnan(still), math.nan, 2 * still), moments), 2, atol=1e-12)


@pytest.mark.parametrize("together", [0.0, 2.0])
def test_shares_are_without_the_noise_of_the_seeds(together: float) -> None:
    """Also where a seed acts on an objective as a whole."""
    random = np.random.default_rng(0)
    objectives, divisions = np.array([-2.0, -1, 0, 1, 2])[:, None], np.array([-1.0, 1, -1, 1])
    y = (objectives + divisions)[:, :, None] + random.normal(size=(400, 5, 4, 8))
    y += together * random.normal(size=(400, 5, 1, 8))
    found = [shares(one) for one in y]
    assert np.mean([one.objectives for one in found]) == pytest.approx(40 / 60, abs=0.03)
    assert np.mean([one.noise for one in found]) > 0.03
    held = [one.interval.low < 40 / 60 < one.interval.high for one in found]
    assert np.mean(held) > 0.88


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write values of all cells: levels of the objectives, and a slope at each batch size."""
    place = tmp_path / "study"
    (place / "sampler").mkdir(parents=True)
    shutil.copy(FOLDER / "sampler" / "split.yaml", place / "sampler")
    moments = objective_values.second_moments()
    monkeypatch.setattr(objective_values, "FOLDER", place)
    rows.cache_clear()

    def write(levels: dict[int, list[float]], slopes: dict[int, float], noise: float = 0.02) -> None:
        random = np.random.default_rng(0)
        for batch, level in levels.items():
            lines = ["row,run,seed,metric,step,value,protocol"]
            for (i, one), (k, split), seed in product(enumerate(OBJECTIVES), enumerate(SPLITS), range(8)):
                value = math.exp(level[i] + slopes[batch] * moments[i, k] + noise * random.normal())
                if (one, split) != ("v", "p"):
                    for metric in (objective_values.METRIC, objective_values.HELD_OUT):
                        lines.append(f"objective={one} split={split},r,{seed},{metric},9,{value},p")
            (place / f"digits_{batch}.per_seed.csv").write_text("\n".join(lines))

    yield write
    rows.cache_clear()


RISING = [0.0, 0.5, 1.0, 1.5, 2.0]
R, W, U = "right", "wrong", "not decided"


@pytest.mark.parametrize(
    ("levels", "slopes", "said"),
    [
        ({}, {16: 0.4, 256: 0.0}, [R, R, R, R, W, R, R]),
        ({}, {16: -0.4, 256: 0.4}, [W, W, R, R, W, R, R]),
        ({}, {16: 0.4, 64: 0.4, 256: 0.0}, [R, R, R, R, W, W, R]),
        ({256: RISING[::-1]}, {16: 0.4, 256: 0.0}, [R, R, R, R, W, R, W]),
        ({16: [0.0] * 5}, {16: 0.4}, [R, R, W, R, W, R, W]),  # eps, whose divisions have the lowest moments
        ({16: [0.0, 0.0, 1.0, 1.5, 2.0]}, {}, [U, U, R, R, W, R, U]),
    ],
)
def test_the_predictions_are_those_of_the_page(levels, slopes, said: list[str], study: Callable[..., None]) -> None:
    batches = {16: 0.0, 64: 0.0, 256: 0.0}
    study(dict.fromkeys(batches, RISING) | levels, batches | slopes)
    lines = objective_page.predictions().split("\n")[2:]
    assert [line.split(" | ")[-1].strip(" |*") for line in lines] == said


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ([0.3, 0.3, 0.3, 0, 0], [-0.3] * 5, R),
        ([0.3, 0.3, 0.3, 0, 0], [0.01] * 5, R),  # equal within 10 %
        ([0.3, 0.3, 0.3, 0, 0], [0, 0, 0, 0, 0.3], W),
        ([0.3, 0.3, -0.3, -0.3, -0.3], [-0.3] * 5, W),
    ],
)
def test_inverted_is_counted_by_its_verdicts(first, last, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 16 worse for at least three objectives, and at 256 for none."""
    random = np.random.default_rng(0)
    cells = {batch: np.array(RISING)[:, None, None] + 0.02 * random.normal(size=(5, 4, 8)) for batch in (16, 64, 256)}
    for batch, own in ((16, first), (256, last)):
        cells[batch][:, 3] += np.array(own)[:, None]
    for own in cells.values():
        own[0, 1] = math.nan
    assert fourth(cells, monkeypatch) == said
    cells[256][1, 3] += np.linspace(-0.6, 0.6, 8) * (said == R)  # of one row it is open
    assert fourth(cells, monkeypatch) == (U if said == R else W)


def fourth(cells: dict[int, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(objective_values, "_values", lambda batch, metric="": ([*range(8)], cells[batch]))
    monkeypatch.setattr(objective_values, "measured", lambda: [*cells])
    return objective_page.predictions().split("\n")[6].split(" | ")[-1].strip(" |*")


def test_the_fall_is_paired_by_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed that one batch size lacks is left out of both."""
    moments, own = objective_values.second_moments(), np.arange(8.0)
    y = {16: 2 * own[:, None, None] * moments, 256: own[:, None, None] * moments}
    found = {batch: (list(range(8)), np.moveaxis(one, 0, 2)) for batch, one in y.items()}
    found[256] = ([0, 1, 2, 4, 5, 6, 7], np.delete(found[256][1], 3, 2))
    monkeypatch.setattr(objective_values, "_values", lambda batch, metric="": found[batch])
    fallen = objective_values.fall()
    assert fallen.n == 7 and fallen.mean == pytest.approx(np.delete(own, 3).mean())


def test_nothing_is_said_of_a_batch_size_that_lacks_seeds(study: Callable[..., None]) -> None:
    study(dict.fromkeys((16, 64, 256), RISING), {16: 0.4, 64: 0.0, 256: 0.0})
    file = objective_values.FOLDER / "digits_16.per_seed.csv"
    file.write_text("\n".join(line for line in file.read_text().split("\n") if ",7," not in line))
    rows.cache_clear()
    assert objective_values.measured() == [64, 256]
    outcomes = [line.split(" | ")[-1].strip(" |*") for line in objective_page.predictions().split("\n")[2:]]
    assert outcomes == ["runs missing: 16"] * 3 + [R, "runs missing: 16", R, "runs missing: 16"]
    assert [line.split(" | ")[0] for line in objective_page.summary().split("\n")[2:]] == ["| 64", "| 256"]


def test_what_was_looked_at_afterwards(study: Callable[..., None]) -> None:
    study(dict.fromkeys((16, 64, 256), [0.0, 0.1, -0.2, 0.3, 0.4]), {16: 0.4, 64: 0.0, 256: 0.0}, noise=1e-6)
    found, moments = objective_values.means(), objective_values.second_moments()
    wanted = math.exp(0.4 * np.mean(moments[1:, 1]))
    np.testing.assert_allclose(found["batches of 16: drawn / weighted, mean"], wanted, rtol=1e-4)
    np.testing.assert_allclose(found["batches of 64: min_snr weighted / v"], math.exp(-0.2), rtol=1e-4)


def test_the_spread_of_the_weights_and_what_explains() -> None:
    """sum q^2/p is 1 where all is in the draws, and that of the squared weights where nothing is."""
    spreads = objective_values.spreads()
    one = Split(cosine(1000), "min_snr", "w", *MEASURED)
    squared = float(one.weight(torch.arange(1000), 0).double().square().mean())
    assert spreads[2, 1] == pytest.approx(-math.log(squared), rel=1e-6)
    x = np.array([[0.0, 1, 2, 3], [5, 5, 7, 9]])
    assert objective_values.explained(2 * x + [[1], [-4]], x) == pytest.approx(1)
    y = x + [[0, 1, -1, 0], [1, -1, 0, 0]]
    within = x - x.mean(1, keepdims=True)
    other = y - y.mean(1, keepdims=True)
    wanted = np.corrcoef(within.ravel(), other.ravel())[0, 1] ** 2
    assert objective_values.explained(y, x) == pytest.approx(wanted)


def test_each_way_is_compared_at_its_own_best_rate(study: Callable[..., None]) -> None:
    study({64: RISING}, {64: 0.0}, noise=0.0)
    for rate, (w, p) in {"0.01": (2.0, 3.0), "0.04": (5.0, 1.0)}.items():
        lines = ["row,run,seed,metric,step,value,protocol"]
        for split, value in (("w", w), ("p", p)):
            lines += [f"x split={split},r,{seed},fd2k_digits,9,{value},p" for seed in range(3)]
        (objective_values.FOLDER / f"rates_{rate}.per_seed.csv").write_text("\n".join(lines))
    ratio = objective_values.means()["batches of 64: min_snr drawn / weighted, each at its best learning rate"]
    np.testing.assert_allclose(ratio, 1 / 2)
    assert objective_page.own_rates().split("\n")[2:] == [
        "| weighted | **2** | 2.72 | 5 |",
        "| drawn | 3 | 2.72 | **1** |",
    ]


@pytest.mark.slow
def test_a_cell_of_the_study_trains(tmp_path: Path) -> None:
    words = ["experiment=objective_digits", "hydra.mode=RUN", "sampler.objective=p2", "sampler.split=optimal"]
    words += ["sampler.timesteps=[0,500,999]", "sampler.gradients=[3,1,0.5]"]
    words += ["max_steps=4", "log_every=1", "solver.steps=2", "trainer=cpu", "question.metric=sample_variance"]
    words += ["metrics.names=[sample_variance]", "metrics.num_samples=16", f"hydra.run.dir={tmp_path / 'run'}"]
    Child(lambda: exit(main(["train", "--config-dir", str(FOLDER), *words])), tmp_path / "log").succeed()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["train/loss"] for line in lines if "train/loss" in line]
    assert len(losses) == 4 and all(map(math.isfinite, losses))
    assert json.loads((tmp_path / "run" / "result.json").read_text())["status"] == "done"
