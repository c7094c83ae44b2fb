"""The crossed study's page, from values made with known ratios."""

from __future__ import annotations

import csv
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from omegaconf import DictConfig, OmegaConf
from scipy import stats

from experiments import cells, crossed, crossed_default, crossed_figures, crossed_page
from experiments.crossed import Cell

ROOT = Path(__file__).parents[2]
THIRD = {"linear": "v", "cosine": "v", "rectified_flow": "velocity", "edm": "edm"}
SAMPLERS = ("uniform", "logit_normal", "speed")
BEST = Cell("cosine", "v", "logit_normal", "unit")


def effect(cell: Cell) -> float:
    """ln of a cell's value to linear, eps, uniform: 1/2 on cosine, 1/2 with logit_normal there, 0.9 with min_snr."""
    halves = (cell.schedule == "cosine") + (cell.schedule == "cosine" and cell.sampler == "logit_normal")
    third = cell.prediction not in ("eps", "x0")
    return -math.log(2) * halves - 0.1 * third + math.log(0.9) * (cell.weighting != "unit")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The committed files of a study with five seeds, and three more of the default and of the best cell, whose values
    are twice as high there: its luck has left it."""
    for module in (crossed, crossed_default, crossed_page, crossed_figures):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    units = [Cell(a, p, s, "unit") for a in THIRD for p in ("eps", "x0", THIRD[a]) for s in SAMPLERS]
    weighted = [cell._replace(weighting="min_snr") for cell in units if cell.sampler == "speed"]
    draw = np.random.default_rng(0)
    values, allocations = [], []
    for cell in [*units, *weighted]:
        seeds = range(8) if cell in (BEST, crossed_page.DEFAULT) else range(5)
        for seed, step in itertools.product(seeds, (400, 800)):
            luck = math.log(2) * (seed >= 5 and cell == BEST)
            y = effect(cell) + luck + 0.01 * draw.standard_normal() + 0.5 * (step == 400)
            values.append([*cell, seed, step, 2 * math.exp(y)])
        allocations.append([*cell, 0, *np.full(24, 1 / 24)])
    _write(tmp_path / "digits.values.csv", [*Cell._fields, "seed", "step", "value"], values)
    _write(tmp_path / "digits.allocations.csv", [*Cell._fields, "seed", *range(24)], allocations)
    return tmp_path


def _write(path: Path, head: list[object], rows: list[list[object]]) -> None:
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def test_the_answers_name_the_best_cell_and_its_ratio_on_other_seeds(folder: Path) -> None:
    best, matters, samplers, weighting, alone = crossed_page.answers("digits").split("\n")
    ratio = math.exp(effect(BEST))
    assert "of 48 cells, 36 of them with unit weighting, `cosine, v, logit_normal` is lowest" in best
    assert f"the best cell has {ratio:.2f} [" in best and re.search(
        rf"\({2 * ratio:.2f} \[.*\] on 3 other seeds\)", best
    )
    assert "schedule explains" in matters and "left to the seeds" in matters
    assert "on cosine `logit_normal` gains most over uniform, 0.50 [" in samplers and samplers.count("not decided") == 3
    assert "min_snr has 0.90 [" in weighting and "over 12 cells" in weighting
    assert "predicts" in alone


def test_a_gain_is_bold_on_its_schedule_alone(folder: Path) -> None:
    _, _, *rows = crossed_page.samplers("digits").split("\n")
    bold = {(row.split("`")[1], i) for row in rows for i, cell in enumerate(row.split("|")[2:-1]) if "**" in cell}
    assert bold == {("logit_normal", 1)}


def test_every_cell_has_a_line_and_the_best_is_first(folder: Path) -> None:
    _, _, *rows = crossed_page.every("digits").split("\n")
    assert len(rows) == 36 + 12 and "`cosine, v, logit_normal`" in rows[0]
    assert rows[0].split("|")[3].strip() == "5"  # the seeds that cells are chosen on


def test_other_seeds_and_other_data_confirm(folder: Path) -> None:
    text = (folder / "digits.values.csv").read_text()
    (folder / "other.values.csv").write_text(text)
    _, _, chosen, digits, other = crossed_default.confirmed("digits").split("\n")
    ratio = math.exp(effect(BEST))
    assert "| digits (chosen on) | 0 to 4 | 2.0" in chosen and f"| {ratio:.2f} [" in chosen
    assert "| digits | 5 to 7 |" in digits
    assert "| other | 0 to 7 |" in other
    assert [one.word for *_, one in crossed_default.confirming()] == ["better", "better"]
    sizes = crossed_page.ratios(crossed_page.values("digits"), BEST, crossed_page.DEFAULT, [5, 6, 7])
    half = stats.t.ppf(1 - 0.025 / 2, 2) * np.std(np.log(sizes), ddof=1) / math.sqrt(3)  # for both at once
    low, high = np.exp(np.mean(np.log(sizes)) + half * np.array([-1, 1]))
    assert f"**{2 * ratio:.2f} [{low:.2f}, {high:.2f}]** | better |" in digits


@pytest.fixture
def longer(folder: Path) -> Path:
    """The longer runs: the best cell is at the default's end after 600 and 400 of 600 steps."""
    ends = {crossed_page.DEFAULT: [4.0, 2.0, 1.0], BEST: [2.0, 1.01, 0.5]}
    late = {crossed_page.DEFAULT: [4.0, 2.0, 1.0], BEST: [2.0, 1.0, 0.5]}
    lines = [
        [*cell, seed, step, value]
        for seed, course in ((0, ends), (1, late))
        for cell, found in course.items()
        for step, value in zip((200, 400, 600), found, strict=True)
    ]
    _write(folder / "digits_longer.values.csv", [*Cell._fields, "seed", "step", "value"], lines)
    return folder


def test_images_until_the_default_is_reached(longer: Path) -> None:
    said = crossed_default.sooner("digits")
    assert "ends after 600 (seed 0), 400 (seed 1) steps: at most 100% of the images" in said
    assert len(crossed_default.confirming()) == 1  # the longer runs confirm nothing: their seeds would count twice


def test_another_data_set_in_the_same_order_agrees_and_in_the_reverse_does_not(folder: Path) -> None:
    text = (folder / "digits.values.csv").read_text()
    (folder / "other.values.csv").write_text(text)
    better, of = _numbers("1.00")
    assert better == of > 0  # in the same order, all that are below the default stay below it
    head, *rows = (line.split(",") for line in text.splitlines())
    _write(folder / "other.values.csv", list(head), [[*row[:-1], 1 / float(row[-1])] for row in rows])
    assert _numbers("\N{MINUS SIGN}1.00") == (0, of)


def _numbers(correlation: str) -> tuple[int, int]:
    """If both correlations of a data set are this one: how many cells stay below the default, and of how many."""
    said = crossed_page.agreement("other")
    found = re.search(rf": {correlation} over 48 cells, and {correlation} over the (\d+) .*; (\d+) of those", said)
    assert found, said
    return int(found[2]), int(found[1])


def test_a_block_of_the_study_is_written_into_its_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "FOLDER", folder)
    page = folder / "README.md"
    page.write_text("# Study\n\n<!-- cells: part crossed_page variance digits -->\n\n| old |\n\n<!-- end -->\n")
    assert list(cells.stale()) == [page] and cells.main([]) == 0
    assert "| schedule | " in page.read_text() and "old" not in page.read_text() and not cells.stale()


@pytest.mark.pages
def test_the_figures_are_written_and_the_same_again(longer: Path) -> None:
    assert crossed_figures.main(["digits"]) == 0
    drawn = {path.name: path.read_bytes() for path in longer.glob("*.svg")}
    assert set(drawn) == {"digits-cells.svg", "digits-curves.svg", "digits-log-snr.svg", "digits-longer.svg"}
    assert crossed_figures.main(["digits"]) == 0
    assert {path.name: path.read_bytes() for path in longer.glob("*.svg")} == drawn


def test_train_without_a_word_is_the_committed_best_cell() -> None:
    defaults = OmegaConf.load(ROOT / "conf" / "train.yaml").defaults
    chosen = {group: option for one in defaults if isinstance(one, DictConfig) for group, option in one.items()}
    assert {name: chosen[name] for name in Cell._fields} == crossed_default.best()._asdict()


def test_the_counts_on_the_pages_are_those_of_the_committed_values() -> None:
    values = crossed_page.values("digits")
    units = [cell for cell in values if cell.weighting == "unit"]
    several = [list(of.values()) for cell, of in crossed_page.first(values).items() if len(of) == 5]
    spread = float(np.median([np.std(np.log(of), ddof=1) for of in several]))
    said = {
        "README.md": f"{len(units)} combinations on digits with five seeds each, {5 * len(units)} runs with unit",
        "docs/first-experiment.md": f"the best of {len(values)} combinations in [our study]",
        "docs/numbers.md": f"is {100 * spread:.0f} % of the value (the median of {len(several)} combinations",
    }
    for page, words in said.items():
        assert words in " ".join((ROOT / page).read_text().split()), page
