"""The study of pairing: its statistics on values with known components, and its runs' values."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.cli.main import main
from experiments import pairing_page
from experiments.pairing_page import ALL, COLUMNS, SOURCES, additive, collect, ratio, variance
from tests.harness import Child

SIZES = {"init": 0.5, "order": 0.3, "noise": 0.2, "timesteps": 0.1, "latents": 0.4}  # deviations of their effects


# Shares of V(nothing) = 0.0231 as the study found them, halved for one of the two runs; the rest is a run's own.
FOUND = {"init": 0.46, "order": 0.06, "noise": 0.03, "timesteps": 1e-4, "latents": 0.17}


def made(seed: int, blocks: int, own: float = 0.1, methods: int = 3, sizes: Mapping[str, float] = SIZES) -> np.ndarray:
    """y whose sources add effects that all methods share, and with an error of each run of its own."""
    random = np.random.default_rng(seed)
    shape = (2,) * len(SOURCES)
    y = own * random.normal(size=(methods, *shape, blocks)) + np.arange(methods).reshape(-1, *[1] * 6)
    for axis, size in enumerate(sizes.values()):
        y = y + size * np.expand_dims(random.normal(size=(2, blocks)), [0, *[1 + k for k in range(5) if k != axis]])
    return y


@pytest.mark.parametrize("shared", [frozenset(), frozenset(["init"]), ALL - {"noise"}, ALL])
def test_the_variance_is_that_of_what_is_not_shared(shared: frozenset[str]) -> None:
    """2 (own^2 + sum of the squares of the effects that are not shared)."""
    true = 2 * (0.1**2 + sum(size**2 for source, size in SIZES.items() if source not in shared))
    found = np.mean([variance(made(seed, 200), shared) for seed in range(20)])
    assert found == pytest.approx(true, rel=0.05)


def test_sources_that_add_up_remove_together_what_they_remove_one_by_one() -> None:
    assert additive(made(0, 400)).mean == pytest.approx(1, abs=0.02)
    y = made(0, 400, own=0)
    both = 2 * np.expand_dims(np.random.default_rng(1).normal(size=(2, 2, 400)), (0, 3, 4, 5))
    assert additive(y + both).mean < 0.7  # init and order act together


def test_the_interval_of_a_ratio_holds_the_true_one() -> None:
    def held(seed: int) -> bool:
        found = ratio(made(seed, 8), frozenset(["init"]), frozenset())
        return found.low is not None and found.high is not None and found.low < true < found.high

    total = sum(size**2 for size in SIZES.values()) + 0.1**2
    true = math.log((total - SIZES["init"] ** 2) / total)
    assert np.mean([held(seed) for seed in range(150)]) > 0.88


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("shared", "base"),
    [
        (ALL, frozenset()),
        (frozenset(["init"]), frozenset()),
        (frozenset(["noise"]), frozenset()),
        (ALL - {"init"}, ALL),
        (ALL - {"order"}, ALL),
    ],
)
def test_intervals_of_effects_as_found_cover_88_to_95_percent(shared: frozenset[str], base: frozenset[str]) -> None:
    """What the page says of its 8 blocks."""
    sizes = {source: math.sqrt(0.0231 * share / 2) for source, share in FOUND.items()}
    own = math.sqrt(0.0231 * 0.27 / 2)

    def total(of: frozenset[str]) -> float:
        return own**2 + sum(size**2 for source, size in sizes.items() if source not in of)

    found = [ratio(made(seed, 8, own, sizes=sizes), shared, base) for seed in range(400)]
    true = math.log(total(shared) / total(base))
    covered = np.mean([one.low < true < one.high for one in found if one.low is not None and one.high is not None])
    assert 0.875 <= covered <= 0.95


def test_tables_and_figure_of_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, y = tmp_path / "values.csv", made(0, 8)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for (method, *levels, block), value in np.ndenumerate(y):
            for step in (100, 400) if levels[-1] == 0 else (400,):
                name = pairing_page.METHODS[method]
                writer.writerow([name, *levels, block, step, math.exp(value * step / 400), "run"])
    monkeypatch.setattr(pairing_page, "VALUES", path)
    pairing_page.values.cache_clear()
    try:
        np.testing.assert_allclose(pairing_page.values()[400], y, atol=1e-9)
        np.testing.assert_allclose(pairing_page.values()[100], y[..., :1, :] / 4, atol=1e-9)
        row = next(line for line in pairing_page.table().split("\n") if line.startswith("| all |"))
        assert f"{math.sqrt(variance(y, ALL)):.3f}" in row
        assert pairing_page.patterns().count("\n") == 33 and pairing_page.course().count("\n") == 3
        assert len(pairing_page.figure().axes) == 3
        lines = pairing_page.predictions().split("\n")
        assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {k}" for k in range(1, 7)]
        # y at step 100 is a quarter of that at 400, so the gains are equal: V is a sixteenth of each
        assert "| 5 | V(all) / V(latents), after 400 steps / after 100 | 1.00 | [1.00, 1.00] |" in lines[6]
        with open(path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(["speed", 0, 0, 0, 0, 0, 8, 400, 1.0, "run"])  # of a block that is not whole
        pairing_page.values.cache_clear()
        with pytest.raises(ValueError, match=r"must have all values of blocks \[0, 1, 2, 3, 4, 5, 6, 7, 8\]"):
            pairing_page.values()
    finally:
        pairing_page.values.cache_clear()


@pytest.mark.slow
def test_a_run_of_the_study_is_trained_measured_twice_and_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["experiment=pairing_digits", "hydra.mode=RUN", "sampler=speed", "seed=3", "dataset.seed=3"]
    words += [
        "stream_seeds.noise=103",
        "max_steps=4",
        "snapshot_every=2",
        "log_every=1",
        "solver.steps=2",
        "trainer=cpu",
    ]
    words += [f"hydra.run.dir={tmp_path / 'runs' / 'one'}", "metrics.num_samples=1000"]

    def work() -> None:
        code = main(["train", "--config-dir", str(pairing_page.FOLDER), *words])
        if not code:
            collect(tmp_path / "runs")
        raise SystemExit(code)

    monkeypatch.setattr(pairing_page, "VALUES", tmp_path / "values.csv")
    monkeypatch.setattr(pairing_page, "LAST", 4)
    Child(work, tmp_path / "log").succeed()
    with open(tmp_path / "values.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line["step"], line["latents"]) for line in lines] == [("2", "0"), ("4", "0"), ("4", "1")]
    assert all([line[key] for key in COLUMNS[:5]] == ["speed", "0", "0", "1", "0"] for line in lines)
    evaluated = [json.loads(line) for line in (tmp_path / "runs/one/evaluations.jsonl").read_text().splitlines()]
    by_latents = {one["protocol"]["seed"]: one["value"] for one in evaluated if one["name"] == "fd1k_digits"}
    assert [float(line["value"]) for line in lines[1:]] == [by_latents["the run's"], by_latents[103]]
    assert len(set(by_latents.values())) == 2
