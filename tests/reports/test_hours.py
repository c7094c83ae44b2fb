"""A cost has an interval only where both methods were trained in the same hours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from diffusion_lab.reports import compare, group_runs, read_runs
from diffusion_lab.reports.comparison.hours import same_devices, same_hours
from diffusion_lab.reports.pair.speedup_of_runs import in_seconds, sentences
from diffusion_lab.runs.run import Run
from tests.reports.synthetic import set_rate, write_run

FD = "fd1k_digits"


def timeline(text: str, seconds: float = 50.0, apart: float = 60.0) -> dict[str, list[Run]]:
    """ "A0 B0 A1": runs of 50 s, one a minute; a name with a dot starts with the one before it."""
    found: dict[str, list[Run]] = {}
    minute = -1
    for word in text.split():
        minute += not word.endswith(".")
        at = int(apart * minute)
        started = f"2026-01-01T{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}+0000"
        run = Run(Path(word), "done", info={"seed": int(word[1]), "started": started}, result={"seconds": seconds})
        found.setdefault(word[0], []).append(run)
    return found


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("A0 B0 C0 A1 B1 C1", True),  # seed by seed
        ("C0 A0 A1 C1", True),  # and back
        ("A0 A1 C0 C1", False),  # one method after the other
        ("A0 C0. A1 C1.", True),  # two slots
        ("A0 A1. A2 C0. C1 C2.", False),  # two slots, the seed in the inner loop
        ("A0 A1 A2 C1", True),  # of the seeds that both have, no run lies between
    ],
)
def test_hours_are_shared_in_turns_or_at_the_same_time(text: str, shared: bool) -> None:
    runs = timeline(text)
    assert same_hours(runs["A"], runs["C"]) is shared
    assert same_hours(runs["C"], runs["A"]) is shared


def test_a_start_that_is_not_recorded_is_not_known_to_be_shared() -> None:
    one, other = Run(Path("a"), "done", info={"seed": 0}), Run(Path("b"), "done", info={"seed": 0, "started": "once"})
    assert not same_hours([one], [other])


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("cpu cuda:0", "cpu cuda:1", True),  # the seeds are of different devices, the two runs of a seed are not
        ("cpu cuda:0", "cuda:0 cpu", False),
        ("cpu cpu", "cpu cuda:0", False),
        ("cpu -", "cpu cuda:0", True),  # not recorded
    ],
)
def test_the_two_runs_of_a_seed_are_compared_on_one_kind_of_device(ours: str, theirs: str, same: bool) -> None:
    def runs(words: str) -> list[Run]:
        infos = [{"seed": k} | ({} if word == "-" else {"device": word}) for k, word in enumerate(words.split())]
        return [Run(Path("x"), "done", info=info) for info in infos]

    assert same_devices(runs(ours), runs(theirs)) is same


def table(folder: Path, order: list[tuple[str, int]], steps: int = 250) -> tuple[dict[str, str], list[str], list]:
    """Method -> its cost as printed, the notes, and the groups; the runs take 100 s, one after the other."""
    for i, (method, seed) in enumerate(order):
        place = folder / f"{method}-{seed}"
        write_run(place, method, seed, steps=steps)
        set_rate(place, 1000.0 if method == "uniform" else 800.0 + 10 * seed)
        record = json.loads((place / "run.json").read_text())
        started = f"2026-01-01T{i // 6:02d}:{i % 6}0:00+0000"
        (place / "run.json").write_text(json.dumps(record | {"started": started}))
    groups = group_runs(read_runs(folder).runs)
    found = compare(groups, FD)
    column = found.titles.index("cost")
    return {line[0].text: line[column].text for line in found.lines}, found.notes, groups


def test_the_cost_of_methods_in_turns_has_an_interval(tmp_path: Path) -> None:
    order = [(method, seed) for seed in range(3) for method in ("uniform", "stratified", "logit_normal")]
    costs, notes, _ = table(tmp_path, order)
    assert costs["stratified"].startswith("1.23 [") and costs["logit_normal"].startswith("1.23 [")
    assert not any("same hours" in note for note in notes)


def test_the_cost_of_one_method_after_the_other_has_none_and_a_note_says_why(tmp_path: Path) -> None:
    order = [(method, seed) for method in ("uniform", "stratified", "logit_normal") for seed in range(3)]
    costs, notes, groups = table(tmp_path, order)
    assert (costs["uniform"], costs["stratified"], costs["logit_normal"]) == ("1", "1.23", "1.23")
    (note,) = [note for note in notes if "same hours" in note]
    assert note.startswith("The cost of stratified and logit_normal has no interval") and "uniform" in note
    assert groups[0].label == "uniform"


def test_a_factor_of_seconds_has_no_interval_either(tmp_path: Path) -> None:
    order = [(method, seed) for method in ("uniform", "logit_normal") for seed in range(3)]
    *_, groups = table(tmp_path, order, steps=1500)
    found = in_seconds(groups[0], groups[1], FD).found
    assert found is not None and found.factor is not None and (found.low, found.high) == (None, None)
    (first, *_) = sentences(found, "uniform", "logit_normal", FD, "seconds")
    assert "no interval, because the runs of the two were not trained in the same hours" in first
