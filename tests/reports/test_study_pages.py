"""The tables of the studies of methods and of precision, against the values by seed beside them."""

import csv
import re
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments import study_figures
from experiments.cells import FOLDER, archived, written
from experiments.option_figures import alike
from experiments.study_along import means

PAGES = [FOLDER / study / f"{data}.md" for study in ("methods", "precision") for data in ("digits", "fashion_mnist")]


def test_the_figures_show_the_values_beside_them() -> None:
    """They are drawn by `make pages` alone: a study that had gained seeds could keep the figure of fewer."""
    for figure, content in study_figures.figures():
        committed = (FOLDER / figure).read_bytes()
        assert alike(committed, content), f"{figure}: python -m experiments.study_figures"
        assert re.findall(rb"<!--.*?-->", committed) == re.findall(rb"<!--.*?-->", content), figure


def lines(page: Path) -> list[list[str]]:
    """The cells of the table's rows, without the marks of a decided one."""
    rows = [line for line in page.read_text(encoding="utf-8").replace("**", "").split("\n") if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def values(page: Path) -> dict[str, dict[str, dict[int, float]]]:
    """Metric -> row -> seed -> value."""
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    with open(page.with_suffix(".per_seed.csv"), newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found[line["metric"]][line["row"]][int(line["seed"])] = float(line["value"])
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_mean_ratio_and_loss_of_a_row_are_those_of_its_seeds(page: Path) -> None:
    metric = page.read_text(encoding="utf-8").split()[3]
    of_metric, losses = values(page)[metric], values(page)["val/loss"]
    base = next(iter(of_metric.values()))
    for row, runs, mean, ratio, *_, loss in (line[:8] for line in lines(page)):
        own = np.array(list(of_metric[row].values()))
        assert runs == f"n={len(own)}" and float(loss) == pytest.approx(np.mean(list(losses[row].values())), rel=1e-3)
        ends = stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own))
        printed = [float(text) for text in mean.replace("[", "").replace("]", "").replace(",", "").split()]
        assert printed == pytest.approx([own.mean(), *ends], rel=1e-3), row
        if ratio != "baseline":
            logs = [np.log(value / base[seed]) for seed, value in of_metric[row].items()]
            assert float(ratio) == pytest.approx(np.exp(np.mean(logs)), abs=0.006), row


def test_a_cell_that_is_not_that_of_the_values_is_written_again(tmp_path: Path) -> None:
    page = tmp_path / "digits.md"
    shutil.copy(PAGES[2].with_suffix(".per_seed.csv"), page.with_suffix(".per_seed.csv"))
    text = PAGES[2].read_text(encoding="utf-8")
    page.write_text(text.replace("1.004", "0.90").replace("0.4220", "0.3000").replace("equal within", "lower by"))
    assert page.read_text() != text and written(page) == text


def test_a_block_that_is_still_empty_is_filled_and_takes_nothing_of_the_text_behind_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- cells: archived -->\n\n<!-- end -->\n\nkept\n\n<!-- cells: archived -->\n\n<!-- end -->\n")
    filled = written(page)
    page.write_text(filled)
    table = archived()
    block = f"<!-- cells: archived -->\n\n{table}\n\n<!-- end -->\n"
    assert filled == f"{block}\nkept\n\n{block}" and written(page) == filled


def test_means_along_a_key_are_those_of_the_seeds_with_students_interval() -> None:
    place, metric = "budgets/digits", "fd2k_digits"
    head, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in means(place, metric).split("\n")]
    files = {
        int(path.name.split("_")[1].split(".")[0]): path for path in FOLDER.glob("budgets/digits_[0-9]*.per_seed.csv")
    }
    assert head[1:] == [f"{value:,}" for value in sorted(files)] and len(rows) == 3
    for name, *cells in rows:
        for value, cell in zip(sorted(files), cells, strict=True):
            with open(files[value], newline="", encoding="utf-8") as file:
                of_row = [line for line in csv.DictReader(file) if line["row"] == name and line["metric"] == metric]
            own = np.array([float(line["value"]) for line in of_row])
            ends = stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own))
            printed = [float(text) for text in cell.replace("[", "").replace("]", "").replace(",", "").split()]
            assert printed == pytest.approx([own.mean(), *ends], rel=6e-3), (name, value)
