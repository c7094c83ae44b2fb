"""Intervals, verdicts and outcomes of a table, recomputed with NumPy and SciPy from the file of its values."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from scipy import stats

from diffusion_lab.tables import Values, summarise
from diffusion_lab.tables.results import FAILS, HOLDS, OPEN, table_csv
from diffusion_lab.tables.text import answer, comparisons, published, said_of, sentence, sentences, tables
from diffusion_lab.tables.values import per_seed_csv, read_per_seed
from tests.tables.in_numpy import check_intervals
from tests.tables.made import table, values

BASE = [5.1, 5.0, 4.8, 5.2, 4.9]
DECIDED = {
    ("base", "linear", "100k"): [9.0, 9.1, 8.9, 9.2, 9.0],
    ("base", "linear", "200k"): BASE,
    ("ours", "linear", "100k"): [8.0, 8.2, 8.1, 8.0, 8.4],
    ("ours", "linear", "200k"): [value - 1 + 0.02 * i for i, value in enumerate(BASE)],
    ("other", "linear", "200k"): [value + 0.3 * (-1) ** i for i, value in enumerate(BASE)],
    ("base", "cosine", "100k"): BASE,
    ("ours", "cosine", "100k"): [value - 2 - 0.03 * i for i, value in enumerate(BASE)],
}


def made(numbers=DECIDED, better: str = "lower"):
    return summarise(values(table(), numbers), better)


def test_numpy_recomputes_every_printed_interval_from_the_file() -> None:
    results = made()
    assert check_intervals(table(), table_csv(results), per_seed_csv(results.values.values)) == 4


def test_an_interval_that_is_wrong_would_be_found() -> None:
    results = made()
    lines = list(csv.DictReader(io.StringIO(table_csv(results))))
    right = next(line["difference_low"] for line in lines if line["difference_low"])
    for wrong in (repr(float(right) + 2e-9), repr(2 * float(right))):
        with pytest.raises(AssertionError):
            said = table_csv(results).replace(right, wrong)
            check_intervals(table(), said, per_seed_csv(results.values.values))


def test_p_values_are_corrected_for_the_last_cells_of_all_rows_and_columns() -> None:
    results = made()
    pairs = [("ours", "linear", "200k"), ("other", "linear", "200k"), ("ours", "cosine", "100k")]
    raw = [stats.ttest_rel(DECIDED[key], DECIDED[("base", *key[1:])]).pvalue for key in pairs]
    order = np.argsort(raw)
    holm = np.empty(3)
    holm[order] = np.minimum(1, np.maximum.accumulate((3 - np.arange(3)) * np.array(raw)[order]))
    found = {(c.row.name, c.column.name, c.cell): c.verdict.p for c in results.cells if c.verdict}
    np.testing.assert_allclose([found[key] for key in pairs], holm, rtol=1e-7, atol=1e-12)
    assert results.tested == 3


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_file_and_the_page_have_the_same_word_for_a_verdict(seeds: int) -> None:
    results = made({key: numbers[:seeds] for key, numbers in DECIDED.items()})
    words = {(line["row"], line["column"]): line["verdict"] for line in csv.DictReader(io.StringIO(table_csv(results)))}
    pages = comparisons(results, {})
    for outcome in results.outcomes:
        row, column = outcome.cell.row, outcome.cell.column
        (shown,) = (line[-1].text for line in pages[column.title].lines if line[0].text == row.title)
        assert shown == words[row.name, column.name] != ""
        assert words[row.name, column.name] == (outcome.measured or OPEN)


def test_outcomes_are_the_papers_side_or_the_other() -> None:
    outcomes = {(o.cell.row.name, o.cell.column.name): o for o in made().outcomes}
    assert outcomes["ours", "linear"].word == HOLDS  # published 3.25 below 5
    assert outcomes["ours", "cosine"].word == FAILS  # published 4.5 above 4, measured 2 below
    assert outcomes["other", "linear"].word == OPEN  # published without a number: higher
    assert outcomes["other", "linear"].seeds is None or outcomes["other", "linear"].seeds > 5


def test_nothing_is_bold_below_three_seeds_or_where_the_correction_takes_it_back() -> None:
    two = made({key: own[:2] for key, own in DECIDED.items()})
    assert not any(cell.bold for one in comparisons(two, {}).values() for line in one.lines for cell in line)
    assert not two.tested and all(outcome.word in ("", OPEN) for outcome in two.outcomes)
    # p = 0.03 by itself, 0.06 as one of two
    weak = {("base", "linear", "200k"): [0.0] * 3, ("ours", "linear", "200k"): [-0.7, -1.0, -1.3]}
    assert stats.ttest_1samp(weak["ours", "linear", "200k"], 0).pvalue == pytest.approx(0.0292, abs=1e-3)
    noise = {("other", "linear", "200k"): [0.5, -0.6, 0.2]}
    alone, beside = made(weak), made({**weak, **noise})
    assert [cell.bold for cell in comparisons(alone, {})["linear"].lines[1]][-1]
    assert not any(cell.bold for cell in comparisons(beside, {})["linear"].lines[1])


def test_the_sentence_has_both_papers_and_our_numbers() -> None:
    said = dict(
        (o.cell.row.name + o.cell.column.name, text)
        for o, (_, text) in zip(made().outcomes, sentences(made()), strict=True)
    )
    assert said["ourslinear"].startswith("Ours, linear: the paper claims 3.25 against 5.00 of Base (FID); here −0.96 [")
    assert "] (fd1k_digits, n = 5): holds here" in said["ourslinear"]
    assert "holds here; would be overturned by" in said["ourslinear"]
    assert "the paper claims a higher FID than Base, without a number" in said["otherlinear"]
    assert "does not hold here" in said["ourscosine"]


def test_a_cell_holds_one_number_and_ours_never_stands_beside_a_published_one() -> None:
    results = made()
    shown = tables(results, {})
    assert list(shown) == [
        "Measured, linear: fd1k_digits",
        "Published, linear: FID",
        "Measured, cosine: fd1k_digits",
        "Published, cosine: FID",
    ]
    number = re.compile(r"[-+−]?\d+\.\d+")
    texts = [cell.text for one in shown.values() for line in one.lines for cell in line]
    texts += [text for outcome in results.outcomes for text in said_of(results, outcome)]
    for text in texts:
        found = number.findall(text)
        assert len(found) < 2 or " ± " in text or (text[0], text[-1]) == ("[", "]"), text
    assert "fd1k_digits and the paper's FID have no common scale" in next(iter(shown.values())).legend


def test_the_answer_counts_the_claims() -> None:
    said = answer(made())
    assert said.startswith("Of 3 claims, 1 holds, 1 does not hold and 1 remains undecided here. A verdict would be")
    few = made({key: numbers[:2] for key, numbers in DECIDED.items()})
    assert answer(few) == "All 3 claims remain undecided here. A verdict takes at least 3 seeds."
    one = {("base", "linear", "200k"): [0.0] * 3, ("ours", "linear", "200k"): [-0.5, 0.4, -0.2]}
    both = made({**one, ("other", "linear", "200k"): [0.5, -0.6, 0.2]})
    assert answer(both).startswith("Both claims remain undecided here. There are 3 seeds, and about ")
    seeds = sorted(outcome.seeds for outcome in both.outcomes)
    assert f"about {seeds[0]:,} to {seeds[1]:,} would decide differences of the measured sizes." in answer(both)
    assert answer(made(one)).startswith("The claim remains undecided here. There are 3 seeds, and about ")


def test_a_column_may_have_a_baseline_of_its_own() -> None:
    columns = {"linear": {"at": [100_000, 200_000]}, "cosine": {"at": [100_000], "baseline": "ours"}}
    results = summarise(values(table(columns=columns), DECIDED), "")
    differences = {(c.row.name, c.column.name): c.difference for c in results.cells if c.difference}
    assert differences.keys() == {("ours", "linear"), ("other", "linear"), ("base", "cosine")}
    base, ours = (DECIDED[name, "cosine", "100k"] for name in ("base", "ours"))
    assert differences["base", "cosine"].mean == pytest.approx(np.mean(base) - np.mean(ours))
    (outcome,) = [o for o in results.outcomes if o.cell.column.name == "cosine"]
    assert outcome.claimed == "lower"  # published 4 below 4.5
    assert "the paper claims 4.00 against 4.50 of Ours (FID)" in sentence(results, outcome)
    shown = comparisons(results, {})
    assert shown["cosine"].titles[-4] == "to Ours, 100k" and shown["linear"].titles[-4] == "to Base, 200k"


def test_a_label_has_its_step_here_beside_it() -> None:
    columns = {
        "linear": {"at": [100_000, 200_000], "labels": ["100 epochs", "200 epochs"]},
        "cosine": {"at": [100_000]},
    }
    made = table(columns=columns)
    titles = comparisons(summarise(values(made, {("base", "linear", "100 epochs"): [1.0]}), ""), {})["linear"].titles
    assert titles == ["", "100 epochs (here after 10 steps)", "200 epochs"]


def test_a_number_may_take_the_place_of_the_baseline() -> None:
    rows = {"slot": {"title": "slot 1", "published": {"linear": [4.0, 5.0]}, "against": {"linear": 100.0}}}
    results = summarise(
        values(table(rows=rows, baseline="", against="equal slots"), {("slot", "linear", "200k"): [40.0, 42.0, 41.0]}),
        "",
    )
    (outcome,) = results.outcomes
    assert outcome.word == HOLDS and outcome.cell.difference.mean == pytest.approx(-59)


def test_a_repeated_baseline_is_called_identical() -> None:
    results = made({**DECIDED, ("ours", "linear", "200k"): BASE})
    text = next(
        text
        for o, (_, text) in zip(results.outcomes, sentences(results), strict=True)
        if o.cell.column.name == "linear"
    )
    assert "identical to the baseline for every seed" in text


def test_values_are_read_back_as_they_were_written() -> None:
    ours = made().values
    assert read_per_seed(per_seed_csv(ours.values)) == ours.values


def test_different_quantities_in_one_table_are_refused() -> None:
    ours = made().values.values
    with pytest.raises(ValueError, match="measure different quantities, fd1k_digits, fd256_digits"):
        Values(table(), [*ours[:-1], ours[-1]._replace(quantity="fd256_digits")])


def test_what_is_not_there_is_a_dash_with_its_reason() -> None:
    shown = comparisons(made(), {("other", "linear"): "seed 1 is missing: killed"})["linear"]
    assert shown.lines[2][1].text == "–"
    assert shown.notes == ["Other: seed 1 is missing: killed."]
    assert shown.lines[1][1].text == "8.14 ± 0.21"
    assert [cell.text for cell in published(table())["linear"].lines[1]] == ["Ours", "8.00", "3.25"]


def test_too_few_seeds_have_one_word_in_the_table_its_legend_and_its_sentences() -> None:
    results = made({("base", "linear", "200k"): [5.0], ("ours", "linear", "200k"): [3.0]})
    shown = comparisons(results, {})["linear"]
    assert [line[-1].text for line in shown.lines][1] == OPEN and f'"{OPEN}"' in shown.legend
    assert "no claim" not in str(shown)


def test_the_answer_where_the_paper_claims_nothing_or_nothing_is_compared() -> None:
    rows = {"base": {"title": "Base"}, "ours": {"title": "Ours"}, "other": {"title": "Other", "only": ["linear"]}}
    decided = summarise(values(table(rows=rows), DECIDED), "lower")
    first = "The paper makes no claim about these rows."
    assert answer(decided) == f"{first} 2 of the 3 rows differ from the baseline after the correction for all of them."
    few = {key: numbers[:2] for key, numbers in DECIDED.items()}
    assert answer(summarise(values(table(rows=rows), few), "lower")) == f"{first} A verdict takes at least 3 seeds."
    alone = summarise(values(table(rows=rows), {("base", "linear", "200k"): BASE}), "lower")
    assert answer(alone) == "No row can be compared with a baseline."
