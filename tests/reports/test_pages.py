"""The pages of experiments/: their computed cells, and the numbers in their prose."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.reports.pages.files import COLUMNS
from experiments import cells
from experiments.study_cells import rows
from tests.reports.recomputed import said
from tests.tables.in_numpy import intervals

_NUMBER = r"(?<![\d.])([+−]?\d+(?:\.\d+)?)"
_INTERVAL = re.compile(rf"{_NUMBER} \[{_NUMBER},\s+{_NUMBER}\]")
_JUDGED = re.compile(r"<!-- cells: judged (\S+) ?(\S*) -->\n\n(.*?)\n<!-- end -->", re.DOTALL)
# What a page says of an earlier measurement, to explain why it changed, and of the cost of a step, from benchmarks/.
EARLIER = {
    ("experiments/methods/README.md", "+1.50"),
    ("experiments/adaptive_beta/README.md", "+1.50"),
    ("experiments/methods/README.md", "1.10"),
}


@pytest.mark.pages
def test_the_gpu_hours_of_the_pages_are_those_of_today():
    assert len(cells.pages()) >= 4
    assert not cells.stale(), "`make test-pages` writes them when it fails, and so does `make pages`; commit them"


def judged() -> list:
    """Every table of the pages whose rows are decided together: its values, its metric and its lines."""
    found = []
    for page in cells.pages():
        for metric, file, table in _JUDGED.findall(page.read_text(encoding="utf-8")):
            values = page.parent / file if file else page.with_suffix(".per_seed.csv")
            lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
            found.append(pytest.param(values, metric, lines[2:], id=f"{page.parent.name}-{values.name}-{metric}"))
    return found


@pytest.mark.parametrize(("values", "metric", "lines"), judged())
def test_the_intervals_of_a_committed_table_are_those_of_the_values_beside_it(values, metric, lines):
    """Means by Student's interval, ratios by the statistic of `tests.tables.in_numpy` with its own drawn quantiles."""
    numbers = rows(values, metric)
    lines = [[cells_[0].strip("`"), *cells_[1:]] for cells_ in lines]
    assert [cells_[0] for cells_ in lines] == list(numbers)
    if all(len(own) == 1 for own in numbers.values()):  # a study that has begun
        assert all("(n=1, no interval)" in cells_[2] and cells_[5] in ("", "no claim") for cells_ in lines)
        return
    for cells_ in lines:
        assert cells_[2] == said(list(numbers[cells_[0]].values()), cells_[2], signed=False)
    base = lines[0][0]
    logs = {name: np.log(list(own.values())) for name, own in numbers.items()}
    tested = [name for name in logs if name != base and (logs[name] != logs[base]).any()]
    mean, half = intervals(np.array([logs[base], *(logs[name] for name in tested)]))
    shown = {cells_[0]: [cell.strip("*") for cell in cells_[3:6]] for cells_ in lines[1:]}
    single = np.abs(mean) > half  # decided without regard to the others
    for name, m, h in zip(tested, mean, half, strict=True):
        ratio, ends, word = shown[name]
        cut = ends[0] == "(", ends[-1] == ")"  # at no difference, by the step-down after a row that is decided
        assert float(ratio) == pytest.approx(np.exp(m), abs=0.0051)
        assert not any(cut) or (single.any() and h > abs(m) > 0.8 * h)
        assert (abs(m) > h or any(cut)) == (word in ("better", "worse")) or word == "equal within 10 %"
        found = [1.0 if one else np.exp(m + way * h) for one, way in zip(cut, (-1, 1), strict=True)]
        assert [float(end) for end in ends.strip("[]()").split(", ")] == pytest.approx(found, abs=0.02)


def test_every_file_of_values_has_a_table(monkeypatch):
    """A block of its own, or one of a part that a module makes of it."""
    others = set(cells.FOLDER.glob("**/*.per_seed.csv")) - {one.values[0] for one in judged()}
    usual, read = open, set()

    def opened(file, *arguments, **keywords):
        read.add(Path(file) if isinstance(file, str | Path) else file)
        return usual(file, *arguments, **keywords)

    rows.cache_clear()
    monkeypatch.setattr("builtins.open", opened)
    for page in {path.with_name("README.md") for path in others}:
        assert cells.written(page) == page.read_text(encoding="utf-8")
    assert others <= read


def test_a_stale_page_is_noticed_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cells, "FOLDER", tmp_path)
    monkeypatch.setattr(cells, "hours_of", {"a/b": 263.4, "a/c": 11384.0}.__getitem__)
    block = "<!-- cells: gpu_hours -->\n\n| t | e | h |\n| --- | --- | ---: |\n"
    block += "| x, y | `a/b` | {} |\n| z | `a/c` | {} |\n\n"
    page = tmp_path / "README.md"
    page.write_text("# Title\n\n" + block.format("282", "7") + "<!-- end -->\n\n| a | `a/b` | 9 |\n")
    assert cells.main(["--check"]) == 1 and "282" in page.read_text()
    assert cells.main([]) == 0 and "written: " in capsys.readouterr().out
    assert page.read_text() == "# Title\n\n" + block.format("263", "11,400") + "<!-- end -->\n\n| a | `a/b` | 9 |\n"
    assert cells.main(["--check"]) == 0


def test_ratios_are_those_of_the_seeds(tmp_path):
    values = {"p2": {0: 1.0, 1: 2.0, 2: 4.0}, "ddpm prediction=v": {1: 1.5, 2: 3.0, 3: 9.0}}
    with open(tmp_path / "s.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row, seeds in values.items():
            writer.writerows(("d", row, "run", seed, "fd", "", value, "") for seed, value in seeds.items())
    row, page = "| p2 / ddpm prediction=v | 9 | [8, 10] |", tmp_path / "README.md"
    # logarithms of 2/1.5 and 4/3, both 0.2877
    assert cells.pairs(page, row, "s.csv", "fd") == "| p2 / ddpm prediction=v | 1.33 | [1.33, 1.33] |"
    assert cells.pairs(page, row, "missing.csv", "fd") == row
    with pytest.raises(ValueError, match="row=ddpm must have fd in"):
        cells.pairs(page, row.replace(" prediction=v", ""), "s.csv", "fd")


def test_every_interval_in_prose_and_in_tables_by_hand_stands_in_a_computed_table():
    known = [found for path in cells.FOLDER.glob("**/*.md") for found in _table_intervals(_computed(path))]
    assert len(known) > 45
    wrong = []
    for path in cells.FOLDER.glob("**/README.md"):
        name = str(path.relative_to(cells.FOLDER.parent))
        by_hand = cells._BLOCK.sub("", path.read_text())
        for found in _INTERVAL.finditer(by_hand.replace(" | [", " [")):
            if (name, found[1]) not in EARLIER and not any(_same(found.groups(), table) for table in known):
                wrong.append(f"{name}: {found[0]}")
    assert wrong == []


def test_a_wrong_interval_would_be_found():
    assert _same(("+0.23", "+0.04", "+0.42"), (0.230, 0.036, 0.423))
    assert not _same(("+0.23", "+0.04", "+0.42"), (0.240, 0.036, 0.423))
    assert not _same(("−0.23", "+0.04", "+0.42"), (0.230, 0.036, 0.423))


def _computed(path):
    """The text of a page, of one with blocks of computed cells these alone."""
    text = path.read_text()
    return text if path.name != "README.md" else "\n".join(found[0] for found in cells._BLOCK.finditer(text))


def _table_intervals(text):
    """Of the tables of `report --table`, and of the blocks between two methods and of reproduced tables."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    for row in rows:
        if re.search(r" n ?= ?\d", row) or " / " in row or " | [" in row:
            merged = row.replace("*", "").replace(" | [", " [")
            yield from (tuple(map(_number, found.groups())) for found in _INTERVAL.finditer(merged))


def _same(said, table):
    """Equal as far as the digits that are said go; a table's own are rounded too."""
    return all(
        abs(_number(text) - value) <= 0.5 * 10.0 ** -len(text.partition(".")[2]) + 5e-4 + 1e-9
        for text, value in zip(said, table, strict=True)
    )


def _number(text):
    return float(text.replace("−", "-"))
