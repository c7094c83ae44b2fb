"""The sentence at the top of a report, from runs whose values are known."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.reports import Question, compare, group_runs, read_runs
from diffusion_lab.reports.comparison.answer import answer
from diffusion_lab.reports.comparison.cells import as_text
from diffusion_lab.reports.comparison.rows import MOVE_A_LOSS, tabulate
from diffusion_lab.reports.comparison.sentences import cautions
from diffusion_lab.verdicts import judge
from tests.reports.curves import FD, STEPS, power_law, write_curves
from tests.reports.test_tables import write_seeds

BASE = [3.0, 3.4, 2.8, 3.2, 3.1]
NOISE = np.array([0.01, -0.02, 0.015, 0.0, -0.01])


def said(folder: Path, methods: dict[str, list[float]], question: Question | None = None) -> str:
    """The answer for methods with these values, of which the first is the baseline and fewer are better."""
    for method, values in methods.items():
        write_seeds(folder, values, method)
    order = list(methods)
    groups = sorted(group_runs(read_runs(folder).runs), key=lambda group: order.index(group.label))
    return answer(tabulate(groups, FD, question))


def test_a_race_has_no_verdict_and_no_interval_here(tmp_path: Path) -> None:
    write_seeds(tmp_path, BASE, "uniform")
    write_seeds(tmp_path, times(0.5)[:3], "logit_normal")
    groups = group_runs(read_runs(tmp_path).runs)
    table = tabulate(groups, FD, Question(race=True))
    assert "race" in answer(table) and "n = 3 to 5" in answer(table)
    assert all(row.metric is not None and row.metric.low is None for row in table.rows)
    assert "95 %" not in as_text(table).legend and "(n=5, no interval)" in as_text(table).lines[0][2].text
    (row,) = (row for row in table.rows if not row.is_baseline)
    assert row.verdict is None and not row.bold and row.effect is not None and row.effect.low is None
    assert not any("seeds" in text and "Fix" in text for text in cautions(table))
    fixed = tabulate(groups, FD, Question())
    assert any(row.bold for row in fixed.rows)


def times(by: float) -> list[float]:
    return (np.array(BASE) * by * np.exp(NOISE)).tolist()


def test_a_clear_winner_is_named_with_its_ratio(tmp_path: Path) -> None:
    text = said(tmp_path, {"uniform": BASE, "logit_normal": times(0.7)})
    logs = math.log(0.7) + NOISE
    half = 2.776445 * logs.std(ddof=1) / math.sqrt(5)
    size, low, high = (f"{math.exp(x):.2f}" for x in (logs.mean(), logs.mean() - half, logs.mean() + half))
    assert text == (
        f"At n = 5, logit_normal is better: it has {size} [{low}, {high}] times the {FD} of uniform at the end."
    )


def test_better_worse_equal_and_undecided_are_one_sentence(tmp_path: Path) -> None:
    rows = {"uniform": BASE, "logit_normal": times(0.7), "loss_second_moment": times(1.3), "stratified": times(1.0)}
    text = said(tmp_path, rows)
    assert re.fullmatch(
        rf"At n = 5, logit_normal is better: it has 0\.70 \[.*\] times the {FD} of uniform at the end; "
        r"loss_second_moment is worse: it has 1\.30 \[.*\] times that of uniform at the end; "
        r"stratified is equal to uniform within 10 %\.",
        text,
    )


def test_no_verdict_says_how_many_seeds_decide_the_margin(tmp_path: Path) -> None:
    own = [3.9, 3.2, 2.3, 3.0, 3.6]
    text = said(tmp_path, {"uniform": BASE, "logit_normal": own})
    found = re.fullmatch(
        r"At n = 5, logit_normal is not decided\. To decide a ratio of 1\.1, run a new comparison with (\d+) seeds\.",
        text,
    )
    assert found
    s, n = np.log(np.array(own) / BASE).std(ddof=1), int(found[1])
    assert 5 < n < 40 and (2.0 + 0.84) * s / math.sqrt(n) < math.log(1.1) * 1.1
    again = said(tmp_path / "wide", {"uniform": BASE, "logit_normal": own}, Question(margin=2.0))
    assert again == "At n = 5, logit_normal is equal to uniform within 100 %."


@pytest.mark.parametrize(("n", "words"), [(1, "With one seed"), (2, "With 2 seeds")])
def test_few_seeds_claim_nothing(tmp_path: Path, n: int, words: str) -> None:
    text = said(tmp_path, {"uniform": BASE[:n], "logit_normal": times(0.5)[:n]})
    assert text == f"{words} there is no verdict (n = {n}); it takes at least 3 seeds."


def test_a_row_with_too_few_seeds_beside_decided_ones_is_not_passed_over(tmp_path: Path) -> None:
    text = said(tmp_path, {"uniform": BASE, "logit_normal": times(0.7), "stratified": times(0.5)[:2]})
    assert "logit_normal is better" in text and text.endswith(
        "; stratified is without a verdict, with fewer than 3 seeds in common."
    )


def test_one_method_alone(tmp_path: Path) -> None:
    assert said(tmp_path, {"uniform": BASE}).startswith("Only uniform has a value; train a second method")


def test_a_repeated_baseline_is_called_identical(tmp_path: Path) -> None:
    text = said(tmp_path, {"uniform": BASE, "logit_normal": BASE})
    assert text == "At n = 5, logit_normal is identical to uniform."


@pytest.fixture
def courses(tmp_path: Path) -> Path:
    """Three seeds; logit_normal has 0.8 times the distance over training, with another noise at the end."""
    random = np.random.default_rng(1)
    for seed in range(3):
        block = 20 * np.exp(random.normal(0, 0.2)) * (STEPS / 250.0) ** -0.5
        for method, ratio in {"uniform": 1.0, "logit_normal": 0.8}.items():
            write_curves(tmp_path / f"{method}-{seed}", method, seed, block * ratio * np.exp(random.normal(0, 0.03, 8)))
    return tmp_path


def test_both_estimands_are_said_and_the_one_that_was_asked_decides(courses: Path) -> None:
    groups = group_runs(read_runs(courses).runs)
    table = tabulate(groups, FD, Question("training"))
    own, base = ([run.curve(f"metrics/{FD}").values for run in group.done] for group in (groups[1], groups[0]))
    over = [{s: math.exp(np.log(one).mean()) for s, one in enumerate(curves)} for curves in (base, own)]
    ends = [{s: one[-1] for s, one in enumerate(curves)} for curves in (base, own)]
    for found, values in ((table.rows[1].effect, over), (table.rows[1].beside, ends)):
        expected = judge(values, "ratio", False)[1]
        assert found is not None and expected is not None and found.word == expected.word
        assert found[1:4] == pytest.approx(expected[1:4])
    assert re.search(
        r"\] times the fd1k_digits of uniform over training, and 0\.\d\d \[.*\] at the end\.", answer(table)
    )
    titles = compare(groups, FD, question=Question("training")).titles
    assert titles[3:6] == ["ratio to uniform over training", "verdict", "at the end"]
    assert compare(groups, FD).titles[3:6] == ["ratio to uniform at the end", "verdict", "over training"]


def test_the_end_decides_where_there_are_no_common_snapshots(courses: Path) -> None:
    path = courses / "logit_normal-2" / "metrics.jsonl"
    path.write_text(path.read_text().splitlines()[-1] + "\n")
    table = compare(group_runs(read_runs(courses).runs), FD, question=Question("training"))
    assert "at the end" in table.answer and "over training" not in " ".join(table.titles)
    assert any("no two snapshots at equal images" in note for note in table.notes)


def test_a_diverged_run_is_counted_and_left_out(courses: Path) -> None:
    for name in ("metrics", "evaluations"):
        path = courses / "logit_normal-2" / f"{name}.jsonl"
        *lines, last = path.read_text().splitlines()
        path.write_text("\n".join([*lines, re.sub(rf'"(metrics/{FD}|value)": [\d.]+', r'"\1": 900.0', last)]))
    groups = group_runs(read_runs(courses).runs)
    table = tabulate(groups, FD)
    row = table.rows[1]
    assert row.diverged == 1 and row.effect is not None and row.effect.n == 2 and row.metric is not None
    assert row.metric.mean < 20  # 900 is in no mean
    made = compare(groups, FD)
    assert made.lines[1][1].text == "n=2 (1 diverged)"
    assert "1 of 3 seeds of logit_normal diverged; its numbers are those of the others." in made.notes


@pytest.mark.parametrize("scale", ["ratio", "difference"])
def test_a_baseline_of_which_all_seeds_diverged_is_named(scale: str, tmp_path: Path) -> None:
    falling = power_law(STEPS)
    for seed in range(3):
        write_curves(tmp_path / f"uniform-{seed}", "uniform", seed, np.array([*falling[:-1], 900.0 + seed]))
        write_curves(tmp_path / f"logit_normal-{seed}", "logit_normal", seed, falling * (1 + seed / 100))
    for path in tmp_path.glob("*/evaluations.jsonl"):
        path.write_text(path.read_text().replace('"name"', f'"compared_by": "{scale}", "name"'))
    table = tabulate(sorted(group_runs(read_runs(tmp_path).runs), key=lambda group: group.label != "uniform"), FD)
    assert (table.scale, table.rows[0].diverged, table.rows[1].unpaired) == (scale, 3, "n/a (baseline diverged)")
    assert table.rows[1].effect is None and table.rows[1].metric is not None
    assert answer(table).startswith("All 3 seeds of uniform diverged, so nothing is compared with it; use --baseline")


def test_a_loss_does_not_decide_between_samplers_and_the_report_says_what_could(courses: Path) -> None:
    made = compare(group_runs(read_runs(courses).runs), "val/loss")
    assert made.answer.startswith("A sampler or weighting moves where the loss is low, so val/loss does not decide")
    assert "bits_per_dim" in made.answer and "--metric fd1k_digits" in made.answer
    line = {title: cell for title, cell in zip(made.titles, made.lines[1], strict=True)}
    assert "verdict" not in line and not any(cell.bold for cell in made.lines[1])
    assert re.fullmatch(r"0\.\d\d", line["ratio to uniform at the end"].text)  # no interval that looks like a verdict


def test_what_moves_a_loss_is_all_that_makes_the_objective() -> None:
    """The parts of a denoiser beside its network, and what is drawn and weighted."""
    parts = set(inspect.signature(Denoiser).parameters) - {"network", "timesteps", "null_label"}
    assert set(MOVE_A_LOSS) == parts | {"sampler", "weighting", "coupling", "auxiliary", "model"}


def test_a_loss_decides_between_rows_that_differ_in_nothing_that_moves_it(tmp_path: Path) -> None:
    for seed in range(3):
        for name, level, rate in (("a", 1.0, 1e-3), ("b", 0.5, 1e-4)):
            optimizer = {"_target_": "torch.optim.Adam", "lr": rate}
            write_curves(
                tmp_path / f"{name}{seed}", "uniform", seed, level * (10 + seed / 9) + STEPS * 0, optimizer=optimizer
            )
    made = compare(group_runs(read_runs(tmp_path).runs), "val/loss")
    assert "is better: it has 0.50" in made.answer


def test_rows_that_differ_in_what_is_trained_have_no_verdict_of_a_loss(tmp_path: Path) -> None:
    for seed in range(3):
        for name, level in (("DiffusionModel", 1.0), ("ForcingModel", 0.5)):
            model = {"_target_": f"diffusion_lab.training.{name}"}
            write_curves(tmp_path / f"{name}{seed}", "uniform", seed, level * (10 + seed / 9) + STEPS * 0, model=model)
    made = compare(group_runs(read_runs(tmp_path).runs), "val/loss")
    assert "is better" not in made.answer and not any(cell.bold for line in made.lines for cell in line)


def test_methods_without_a_common_seed_are_not_called_absent(tmp_path: Path) -> None:
    for method, seeds in (("uniform", (0, 1, 2)), ("logit_normal", (3, 4, 5))):
        for seed in seeds:
            write_curves(tmp_path / f"{method}{seed}", method, seed, power_law(STEPS))
    said = answer(tabulate(group_runs(read_runs(tmp_path).runs), FD))
    assert said == "No method can be compared with uniform (no common seed); train one with the same seeds."


def test_the_loss_beside_a_row_is_of_the_runs_that_count(tmp_path: Path) -> None:
    for seed in range(4):
        for method, level in (("uniform", 1.0), ("logit_normal", 0.7)):
            lost = method == "logit_normal" and seed == 3
            write_curves(tmp_path / f"{method}{seed}", method, seed, (100 if lost else level) * power_law(STEPS))
    table = tabulate(sorted(group_runs(read_runs(tmp_path).runs), key=lambda group: group.label != "uniform"), FD)
    base, own = table.rows
    assert own.diverged == 1 and own.val_loss is not None and base.val_loss is not None
    assert own.val_loss.mean == pytest.approx(0.7 * base.val_loss.mean) and own.val_loss.n == 3
