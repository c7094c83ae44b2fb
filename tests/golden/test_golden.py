"""Trainings, names and hashes are what they were when `python -m tests.golden` wrote them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden import compare
from tests.golden.compositions import identity, on_base, rounds_to_store, table_identities, table_places
from tests.golden.runs import RUNS, machine, measure, run_configuration
from tests.golden.runs import identity as run_identity

STORED = compare.stored(compare.RUNS_FILE)
COMPOSITIONS = compare.stored(compare.COMPOSITIONS_FILE)
CURE = "if this is meant, write them anew with `python -m tests.golden` and put what it prints into the commit"


def test_all_twelve_are_stored() -> None:
    assert list(STORED["runs"]) == list(RUNS) and len(RUNS) == 12


@pytest.mark.parametrize("name", RUNS)
def test_a_training_keeps_its_name_and_hashes(name: str, tmp_path: Path) -> None:
    now = run_identity(run_configuration(name, tmp_path / "run"))
    assert compare.identities(STORED["runs"][name], now) == [], CURE


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_training_keeps_its_numbers_and_on_the_same_machine_its_bits(name: str, tmp_path: Path) -> None:
    then, now = STORED["runs"][name], measure(name, tmp_path / "run")
    assert compare.identities(then, now) == [], CURE
    assert compare.numbers(then, now) == [], CURE
    if other := compare.other_facts(STORED["machine"], machine()):
        pytest.skip(f"names, hashes and numbers within {compare.TOLERANCE} are equal; bits not compared: {other}")
    assert compare.bits(then, now) == [], CURE


@pytest.mark.slow
def test_negative_control_another_seed_is_seen_by_every_comparison(tmp_path: Path) -> None:
    then, now = STORED["runs"]["logit_normal"], measure("logit_normal", tmp_path / "run", "seed=1")
    assert [line.partition(":")[0] for line in compare.identities(then, now)] == ["name", "config_hash"]
    different = compare.numbers(then, now, 5 * compare.TOLERANCE)
    assert {line.partition(":")[0] for line in different} >= {"weights", "optimizer", "average 0.3", "average 0.6"}
    assert any("train/loss:" in line for line in different) and any("val/loss:" in line for line in different)
    assert {"weights", "optimizer", "average 0.3", "average 0.6"} <= set(compare.bits(then, now))


def test_the_comparisons_see_one_bit_one_number_and_a_lost_line() -> None:
    then = STORED["runs"]["stratified"]
    now: dict[str, Any] = copy.deepcopy(then)
    assert compare.bits(then, now) == compare.numbers(then, now) == compare.identities(then, now) == []
    now["parts"]["sampler"]["sha256"] = "0" * 64
    assert compare.bits(then, now) == ["sampler"] and compare.numbers(then, now) == []
    now["parts"]["sampler"]["numbers"][1] *= 1 + 2 * compare.TOLERANCE
    now["metrics"][0]["train/loss"] *= 1 + 2 * compare.TOLERANCE
    now["metrics"][1]["something new"] = 1.0  # is no difference
    assert [line.partition(":")[0] for line in compare.numbers(then, now)] == ["sampler", "step 4, train/loss"]
    del now["parts"]["sampler"], now["metrics"][-1]
    assert compare.numbers(then, now)[0].startswith("sampler") and "lines" in compare.numbers(then, now)[1]


def rounds() -> Iterator[Any]:
    """The stored rounds; one whose options all stand in longer ones before it is a second case."""
    seen: set[str] = set()
    for words in sorted(COMPOSITIONS["rounds"], key=lambda words: -len(words.split())):
        new = set(words.split()) - seen
        yield words if new else pytest.param(words, marks=pytest.mark.exhaustive)
        seen |= new


@pytest.mark.parametrize("words", [*rounds()])
def test_rounds_of_options_keep_their_names_and_hashes(words: str) -> None:
    assert identity(words.split()) == COMPOSITIONS["rounds"][words], CURE


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "as_composed"), [("options", on_base), ("jobs", list)])
def test_every_option_alone_and_the_jobs_of_every_experiment_keep_their_names_and_hashes(
    kind: str, as_composed: Callable[[list[str]], list[str]]
) -> None:
    now = {words: identity(as_composed(words.split())) for words in COMPOSITIONS[kind]}
    assert {words: now[words] for words, then in COMPOSITIONS[kind].items() if now[words] != then} == {}, CURE


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("place", table_places())
def test_the_jobs_of_every_table_keep_their_names_and_hashes(place: str) -> None:
    now = table_identities(place)
    assert now == {job: then for job, then in COMPOSITIONS["tables"].items() if job.startswith(f"{place} ")}, CURE


def test_an_option_that_is_added_changes_no_stored_round() -> None:
    stored = [["a=1", "b=1"], ["a=2", "b=2"]]
    assert rounds_to_store(stored, [["a=1", "b=1"], ["a=2", "b=2"], ["a=3", "b=1"]]) == [*stored, ["a=3", "b=1"]]
    assert rounds_to_store(stored, [["a=1", "b=1"]]) == [["a=1", "b=1"]]
