"""`report --within KEY`: a section for each value, and how the ratio of each row changes over them."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.cli.report_wandb import log_report
from diffusion_lab.crossing import Crossings
from diffusion_lab.reports import Report, make_report, read_runs, sections_of
from diffusion_lab.reports.comparison.along import Along, along, crossing_text
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.figures import along_figure
from experiments.study_along import FOLDER, along_of
from experiments.study_cells import rows
from tests.reports.synthetic import evaluation
from tests.reports.test_cells import FD, write

FACTORS = {800: 0.5, 1600: 1.0, 3200: 2.0}  # of logit_normal to uniform: twice as large at each doubling
NOISE = (0.9, 1.0, 1.0 / 0.9)


def value(method: str, budget: int, seed: int) -> float:
    return (3 + seed) / budget * (FACTORS[budget] * NOISE[seed] if method == "logit_normal" else 1.0)


@pytest.fixture
def budgets(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for budget in (3200, 800, 1600):
        for method in ("uniform", "logit_normal"):
            for seed in range(3):
                path = folder / f"{method}-{budget}-{seed}"
                write(path, method, seed, value(method, budget, seed), 0.1, 100.0, 10.0, max_steps=budget)
    return folder


def made(folder: Path, **chosen: str) -> Report:
    runs = read_runs(folder)
    return make_report(runs, sections_of(runs.runs, **chosen), chosen.get("by"))


def course(folder: Path, **chosen: str) -> Along:
    sections = sections_of(read_runs(folder).runs, **chosen)
    (found,) = along(sections, [tabulate(one.groups, one.metric, one.question) for one in sections])
    return found


def test_each_value_is_a_section_in_order_and_rows_have_no_word_of_it(budgets: Path) -> None:
    sections = sections_of(read_runs(budgets).runs, within="max_steps")
    assert [one.title for one in sections] == [f"digits max_steps={n}: {FD}" for n in (800, 1600, 3200)]
    assert all([group.label for group in one.groups] == ["uniform", "logit_normal"] for one in sections)
    assert len(sections_of(read_runs(budgets).runs)) == 1


def test_trend_and_crossing_are_those_of_the_values(budgets: Path) -> None:
    found = course(budgets, within="max_steps")
    (row,) = found.rows
    assert (found.values, found.base, row.label) == ([800, 1600, 3200], "uniform", "logit_normal")
    assert [effect and round(effect.size, 9) for effect in row.effects] == [0.5, 1.0, 2.0]
    assert row.trend is not None and row.crossing is not None
    assert math.isclose(row.trend.mean, math.log(2)) and math.isclose(row.trend.std or 0, 0, abs_tol=1e-9)
    assert [round(2**place) for place in row.crossing.zeros] == [1600]


def test_the_baseline_may_be_chosen_and_turns_the_trend(budgets: Path) -> None:
    (row,) = course(budgets, within="max_steps", baseline="logit_normal").rows
    assert row.label == "uniform" and row.trend is not None and math.isclose(row.trend.mean, -math.log(2))


def test_a_seed_that_one_value_lacks_is_in_that_section_alone(budgets: Path) -> None:
    result = budgets / "logit_normal-3200-2" / "result.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"status": "failed"}))
    (row,) = course(budgets, within="max_steps").rows
    assert [effect and effect.n for effect in row.effects] == [3, 3, 2]
    assert row.trend is not None and row.trend.n == 2 and row.trend.low is None


def test_words_as_values_have_a_table_without_trend_and_figure(budgets: Path, without_figures) -> None:
    report = made(budgets, within="sampler", by="max_steps")
    (one,) = report.courses
    first, *words = one.table.titles
    assert (first, set(words), one.figure) == ("max_steps", {"uniform", "logit_normal"}, None)


def test_terminal_page_and_table_have_the_course(budgets: Path, tmp_path: Path, capsys, without_figures) -> None:
    table = tmp_path / "t.md"
    assert main([str(budgets), "--within", "max_steps", "--table", str(table)]) == 0
    said, page = capsys.readouterr().out, (budgets / "report.html").read_text()
    for text in (said, page, table.read_text()):
        assert f"digits, along max_steps: {FD}" in text.replace("_", "_") and "per doubling" in text
    assert "--within max_steps" in table.read_text() and "| logit_normal | **0.50" in table.read_text()


def test_the_table_over_the_values_is_logged_to_wandb_as_it_is_written(
    budgets: Path, monkeypatch, without_figures
) -> None:
    logged: dict[str, object] = {}
    logger = SimpleNamespace(
        log_hyperparams=lambda _: None, log_summary=lambda _, tables: logged.update(tables), finalize=lambda _: None
    )
    monkeypatch.setattr("diffusion_lab.loggers.WandbLogger", lambda *_, **__: logger)
    monkeypatch.setattr("diffusion_lab.cli.dashboard_source.wandb_places", lambda *_: ("p", ["g"]))
    report = made(budgets, within="max_steps")
    log_report(report, "report")
    assert list(logged) == [f"comparison: {title}" for title in report.tables] and len(logged) == 4


def test_a_value_with_another_baseline_is_no_point_of_the_line(budgets: Path) -> None:
    """Its ratios are to another method."""
    for path in budgets.glob("uniform-3200-*"):
        shutil.rmtree(path)
    for seed in range(3):
        write(
            budgets / f"stratified-3200-{seed}", "stratified", seed, 1.0 + 0.1 * seed, 0.1, 100.0, 10.0, max_steps=3200
        )
    found = course(budgets, within="max_steps")
    assert (found.base, found.values) == ("uniform", [800, 1600])


def test_values_measured_in_two_ways_are_no_points_of_one_line(budgets: Path, without_figures) -> None:
    """Two protocols at one value of the key are two sections, and each has a course of its own."""
    for path in [*budgets.iterdir()]:
        again = budgets / f"{path.name}-other"
        shutil.copytree(path, again)
        record = json.loads((again / "run.json").read_text())
        hashes = {key: record[key][::-1] for key in ("config_hash", "group_hash")}
        (again / "run.json").write_text(json.dumps(record | hashes))
        for seed, folder in enumerate((path, again)):
            last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
            line = evaluation(last["step"], FD, last[f"metrics/{FD}"])
            line["protocol"]["seed"] = seed
            (folder / "evaluations.jsonl").write_text(json.dumps(line) + "\n")
    sections = sections_of(read_runs(budgets).runs, within="max_steps")
    found = along(sections, [tabulate(one.groups, one.metric, one.question) for one in sections])
    assert [one.values for one in found] == [[800, 1600, 3200]] * 2
    titles = [one.title for one in made(budgets, within="max_steps").courses]
    assert len(set(titles)) == 2 and titles[1] == f"digits, along max_steps: {found[0].metric} (2)"


def test_one_value_is_no_course_and_a_wrong_key_is_refused(budgets: Path, capsys, without_figures) -> None:
    assert made(budgets, within="batch_size").courses == []
    for option in ("within", "by"):
        for key in ("seed", "dataset.seed", "paths.run_dir"):
            assert main([str(budgets), f"--{option}", key]) == 2
            assert f"{option}={key} must be equal in runs that are averaged" in capsys.readouterr().err
    assert main([str(budgets), "--within", "max_stepz"]) == 2
    assert "within=max_stepz must be a key of the configuration; use e.g. --within max_steps" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("zeros", "spans", "text"),
    [
        ([10.0], [(9.0, 11.0)], "1,024 [512, 2,048]"),
        ([], [], "none"),
        ([], [(11.5, 12.0)], "none [2,900, ≥ 4,096]"),
        ([8.5], [(8.0, 9.0), (11.0, 12.0)], "362 [≤ 256, 512] and [2,048, ≥ 4,096]"),
        ([10.0], None, "1,024"),
    ],
)
def test_a_crossing_in_words(zeros: list[float], spans: list[tuple[float, float]] | None, text: str) -> None:
    of = SimpleNamespace(places=[8.0, 12.0])
    assert crossing_text(Crossings(zeros, spans), of) == text  # type: ignore[arg-type]


def test_the_figure_has_a_line_for_each_row_at_the_values_and_their_sizes(budgets: Path, drawn) -> None:
    found = course(budgets, within="max_steps")
    assert along_figure(found) is not None
    (axis,) = drawn[0].axes
    (line,) = (one for one in axis.lines if one.get_label() == "logit_normal")
    assert [round(float(y), 9) for y in line.get_ydata()] == [0.5, 1.0, 2.0]
    assert [round(2 ** float(x)) for x in line.get_xdata()] == [800, 1600, 3200]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["800", "1,600", "3,200"]


def test_the_page_of_budgets_has_the_table_of_its_committed_values() -> None:
    """Each ratio is that of the geometric means of the seeds that both have."""
    found = along_of(FOLDER / "budgets" / "digits", "max_steps", "fd2k_digits")
    for k, steps in enumerate(found.values):
        own = rows(FOLDER / "budgets" / f"digits_{steps}.per_seed.csv", "fd2k_digits")
        for one in found.rows:
            seeds = own[one.label].keys() & own[found.base].keys()
            logs = [math.log(own[one.label][seed] / own[found.base][seed]) for seed in seeds]
            effect = one.effects[k]
            assert effect is not None and math.isclose(effect.size, math.exp(sum(logs) / len(logs)))
