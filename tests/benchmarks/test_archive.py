"""The archive has the values of the committed files, and intervals of tables drawn from it hold their truth."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import verdicts
from experiments.archive import PATH, curves
from experiments.archive.__main__ import FOLDER, collected, files, samples_of

# Of a claim's quantities, and of runs that the archive has with the samples of training's precision.
LEFT_OUT = ("claims.values.csv", "precision/training_and_sampling.csv")


def test_it_has_what_the_files_have() -> None:
    kept, now = curves(), collected()
    assert [one[:8] for one in kept] == [one[:8] for one in now], "run python -m experiments.archive"
    for one, other in zip(kept, now, strict=True):
        assert one.seconds == other.seconds or one.seconds != one.seconds
        assert np.array_equal(one.steps, other.steps) and np.array_equal(one.values, other.values)


def test_it_is_small_and_has_a_thousand_curves() -> None:
    assert sum(len(curve.steps) > 1 for curve in curves()) >= 1000 and PATH.stat().st_size < 20e6


def test_every_file_of_values_by_seed_is_in_it_or_is_said_to_be_left_out() -> None:
    kept = {path.relative_to(FOLDER).as_posix() for path in files()}
    found = set()
    for path in sorted(FOLDER.rglob("*.csv")):
        name = path.relative_to(FOLDER).as_posix()
        with open(path, newline="", encoding="utf-8") as file:
            head = next(csv.reader(file))
        if {"seed", "run"} & {*head} and {"value", "val_loss"} & {*head} and "/results/smoke/" not in name:
            found.add(name)
    assert found - kept == set(LEFT_OUT) and kept <= found


@pytest.mark.parametrize(
    ("metric", "samples"),
    [
        ("fd2k_digits", 2000),
        ("copying1k", 1000),
        ("fd512_fashion_mnist14", 512),
        ("val/loss", 0),
        ("consistency [dB]", 0),
    ],
)
def test_the_name_of_a_metric_has_its_samples(metric: str, samples: int) -> None:
    assert samples_of(metric) == samples


def test_two_values_of_one_step_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = FOLDER / "newer" / "flow.per_seed.csv"
    place = tmp_path / "newer" / source.name
    place.parent.mkdir()
    text = source.read_text()
    place.write_text(text + text.splitlines()[1].replace("1.3401141966124612", "1.5") + "\n")
    monkeypatch.setattr("experiments.archive.__main__.FOLDER", tmp_path)
    with pytest.raises(ValueError, match="another value than 1.34"):
        collected()


@pytest.mark.parametrize("rows", [2, 4, 7])
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_of_its_tables_cover_95_percent_within_1(rows: int, seeds: int) -> None:
    own = [*verdicts.studies(without="learned_beta").values()]
    assert abs(verdicts.coverage_of_studies(own, rows, seeds, 10_000) - 0.95) < 0.01


def test_narrower_intervals_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrower(y: np.ndarray) -> verdicts.Judged:
        found = judged(y)
        low, high = (found.mean + 0.8 * (end - found.mean) for end in (found.low, found.high))
        return found._replace(low=low, high=high)

    judged = verdicts.judged
    monkeypatch.setattr(verdicts, "judged", narrower)
    assert verdicts.coverage_of_studies([*verdicts.studies("learned_beta").values()], 4, 5, 10_000) < 0.93
