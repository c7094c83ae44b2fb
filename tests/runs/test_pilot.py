"""Finished runs as a pilot: which values are used, which variance comes from where, and the price of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.planning import ARCHIVE, NextHour, Price, components, next_hour
from diffusion_lab.planning import training_component as trained
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.pilot import pilot_of, price_of, what_next
from diffusion_lab.runs.run import Run
from diffusion_lab.verdicts import size_decided

FD, KNOWN = "fd1k_digits", ARCHIVE["end"]
DRAWN = np.exp(np.random.default_rng(0).normal(0, 0.1, (2, 3, 4)))  # rows, seeds, sets of latents


def lines(path: Path, *rows: dict) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write(
    folder: Path, row: int, seed: int, sets: int = 0, samples: int = 1000, clock: bool = True, latents="the run's"
):
    """A run of 20 steps of 8 images with the values DRAWN, twice as large at step 10."""
    folder = folder / f"{row}-{seed}"
    folder.mkdir(parents=True)
    values = DRAWN[row, seed].tolist()
    protocol = {"samples": samples, "seed": latents}
    (folder / "run.json").write_text(
        json.dumps({"seed": seed, "group_hash": str(row), "global_batch": 8, "config": {}})
    )
    (folder / "result.json").write_text(json.dumps({"status": "done", "step": 20, "seconds": 50.0}))
    lines(
        folder / "metrics.jsonl",
        *({"step": at, "images": 8 * at, f"metrics/{FD}": k * values[0]} for at, k in ((10, 2.0), (20, 1.0))),
    )
    line = {"step": 20, "name": FD, "value": values[0], "better": "lower", "protocol": protocol}
    together = line | {"name": f"{FD}_mean_of_{sets}", "value": 9.0, "values": values[:sets]}
    lines(folder / "evaluations.jsonl", line, *([together] if sets else []))
    lines(folder / "timing.jsonl", {"step": 20, "seconds": 42.0, **({"training_seconds": 30.0} if clock else {})})
    return read_run(folder)


def write_all(folder: Path, seeds: int, sets: int, **more) -> list[list[Run]]:
    return [[write(folder, row, seed, sets, **more) for seed in range(seeds)] for row in range(2)]


def test_seeds_and_sets_of_latents_give_both_variances(tmp_path: Path) -> None:
    pilot = pilot_of(write_all(tmp_path, 3, 4), FD, "end")
    assert pilot is not None and np.array_equal(pilot.sets, DRAWN) and np.array_equal(pilot.own, DRAWN[:, :, 0])
    assert pilot.components(KNOWN) == components(DRAWN, 1000)
    assert pilot.words == "2 rows, 3 seeds, 4 sets of latents"


def test_a_plan_weighs_training_by_degrees_of_freedom(tmp_path: Path) -> None:
    pilot = pilot_of(write_all(tmp_path / "three", 3, 4), FD, "end")
    assert pilot is not None
    own = components(DRAWN, 1000)
    assert pilot.moderated(KNOWN) == own._replace(training=(2 * own.training + 2 * KNOWN.training) / 4)
    one = pilot_of(write_all(tmp_path / "one", 1, 4), FD, "end")
    assert one is not None and one.moderated(KNOWN) == one.components(KNOWN)  # one seed tells nothing of it


def test_over_training_the_values_are_those_of_the_curves(tmp_path: Path) -> None:
    pilot = pilot_of(write_all(tmp_path, 3, 4), FD, "training")
    assert pilot is not None and pilot.own == pytest.approx(np.sqrt(2) * DRAWN[:, :, 0])
    assert pilot.components(KNOWN) == trained(pilot.own, 1000, components(DRAWN, 1000))


def test_a_variance_that_the_runs_do_not_tell_is_the_known_one(tmp_path: Path) -> None:
    seeds = pilot_of(write_all(tmp_path / "seeds", 3, 0), FD, "end")
    assert seeds is not None and seeds.components(KNOWN) == trained(DRAWN[:, :, 0], 1000, KNOWN)
    latents = pilot_of(write_all(tmp_path / "latents", 1, 4), FD, "end")
    differences = np.log(DRAWN[1, 0] / DRAWN[0, 0])
    assert latents is not None
    assert latents.components(KNOWN) == pytest.approx((KNOWN.training, differences.var(ddof=1), 1000))


def test_only_what_all_rows_have_is_used(tmp_path: Path) -> None:
    rows = write_all(tmp_path, 2, 4)
    rows[0].append(write(tmp_path, 0, 2, sets=3))
    pilot = pilot_of([*rows, []], FD, "end")
    assert pilot is not None and np.array_equal(pilot.sets, DRAWN[:, :2])
    rows[1][0] = write(tmp_path / "fewer", 1, 0, sets=2)
    fewer = pilot_of(rows, FD, "end")
    assert fewer is not None and np.array_equal(fewer.sets, DRAWN[:, :2, :2])


def test_what_is_no_pilot(tmp_path: Path) -> None:
    rows = write_all(tmp_path, 2, 0)
    assert pilot_of(rows[:1], FD, "end") is None and pilot_of(rows, "kd1k_digits", "end") is None
    assert pilot_of([rows[0][:1], rows[1][1:]], FD, "end") is None  # no seed in common
    other = write(tmp_path / "other", 1, 0, samples=2000)
    assert pilot_of([rows[0], [other]], FD, "end") is None
    features = tmp_path / "features"
    own = [write(features, row, 0) for row in range(2)]  # of two networks that have one name
    assert pilot_of([[run] for run in own], FD, "end") is not None
    path = own[1].folder / "evaluations.jsonl"
    path.write_text(path.read_text().replace('"samples"', '"extractor": {"weights_sha256": "a"}, "samples"'))
    assert pilot_of([[read_run(run.folder)] for run in own], FD, "end") is None


def test_the_price_is_what_the_clock_says(tmp_path: Path) -> None:
    run = write(tmp_path, 0, 0)
    assert price_of([run, run], FD, 1000) == pytest.approx(Price(30.0, 20 / 2000, 2))
    assert price_of([write(tmp_path / "old", 0, 0, clock=False)], FD, 1000) is None


def test_what_one_more_hour_buys_is_said_where_it_is_known(tmp_path: Path) -> None:
    wanted = next_hour(components(DRAWN, 1000), Price(30.0, 0.01, 2), 1000, 3, 2, "end")
    found = what_next(write_all(tmp_path / "known", 3, 4), FD)
    assert found is not None and found.hours == pytest.approx(wanted.hours) and found.now == wanted.now
    assert "36 more seeds" in str(found)  # an hour of 50 s for each of two rows
    assert what_next(write_all(tmp_path / "no seeds", 1, 4), FD) is None
    assert what_next(write_all(tmp_path / "no clock", 3, 4, clock=False), FD) is None


def test_snapshots_are_what_the_question_over_training_would_decide(tmp_path: Path) -> None:
    """The values of `write` differ by the same factor at both snapshots, so both questions decide the same."""
    found = what_next(write_all(tmp_path / "two", 3, 0), FD)
    assert found is not None and found.training == (2, pytest.approx(found.now))
    assert str(found).endswith(f"Over training, the 2 snapshots of these runs would decide {found.now:.2f}.")
    rows = write_all(tmp_path / "one", 3, 0)
    for run in (run for row in rows for run in row):
        path = run.folder / "metrics.jsonl"
        path.write_text(path.read_text().splitlines(keepends=True)[-1])
    once = what_next([[read_run(run.folder) for run in row] for row in rows], FD)
    assert once is not None and once.training is None and once == found._replace(training=None, **prices(once))
    over = what_next(write_all(tmp_path / "over", 3, 0), FD, "training")
    assert over is not None and over.training is None


def prices(found: NextHour) -> dict[str, object]:
    """What depends on the number of evaluations."""
    return {"hours": found.hours, "seeds": found.seeds}


def test_one_set_of_latents_tells_what_seeds_buy_if_it_belongs_to_the_seed(tmp_path: Path) -> None:
    found = what_next(write_all(tmp_path / "own", 3, 0), FD)
    deviation = np.log(DRAWN[1, :, 0] / DRAWN[0, :, 0]).std(ddof=1)
    assert found is not None and found.now == pytest.approx(np.exp(-size_decided(deviation, 3, 2)))
    assert (found.share, found.samples, found.seeds[0]) == (None, None, 36)
    assert what_next(write_all(tmp_path / "common", 3, 0, latents=0), FD) is None  # as in 0.1.0
    assert what_next(write_all(tmp_path / "sets", 3, 4, latents=0), FD) is not None
