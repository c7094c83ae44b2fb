"""Intervals, verdicts and outcomes of a table, recomputed with NumPy and SciPy from the file of its values."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest

from diffusion_lab.tables import Values, summarise
from diffusion_lab.tables.judged import OVER_TRAINING
from diffusion_lab.tables.results import EQUAL, FAILS, HOLDS, OPEN, table_csv
from diffusion_lab.tables.said import answer, said_of, sentence, sentences
from diffusion_lab.tables.text import comparisons, published, tables
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


def made(numbers=DECIDED, better: str = "lower", scale="difference", **changed):
    return summarise(values(table(**{"margin": 1.001, **changed}), numbers), better, scale)


@pytest.mark.parametrize("scale", ["ratio", "difference"])
@pytest.mark.parametrize("estimand", ["end", "training"])
def test_numpy_recomputes_every_printed_interval_from_the_file(scale, estimand) -> None:
    results = made(scale=scale, estimand=estimand)
    compared = check_intervals(results.table, table_csv(results), per_seed_csv(results.values.values))
    assert compared == 5  # ours at two steps, over training and on cosine; other at the end


def test_an_interval_that_is_wrong_would_be_found() -> None:
    results = made()
    lines = list(csv.DictReader(io.StringIO(table_csv(results))))
    right = next(line["difference_low"] for line in lines if line["difference_low"])
    with pytest.raises(AssertionError):
        said = table_csv(results).replace(right, repr(1.1 * float(right)))
        check_intervals(table(), said, per_seed_csv(results.values.values))


def test_rows_of_a_column_are_decided_together_and_columns_by_themselves() -> None:
    rows = {(c.row.name, c.column.name): c.compared.rows for c in made().cells if c.decides and c.compared}
    assert rows == {("ours", "linear"): 3, ("other", "linear"): 3, ("ours", "cosine"): 2}


def test_what_decides_is_the_mean_over_training_where_the_table_says_so() -> None:
    results = made(scale="ratio", estimand="training")
    (linear,) = (o for o in results.outcomes if (o.cell.row.name, o.cell.column.name) == ("ours", "linear"))
    logs = [np.log(DECIDED["ours", "linear", at]) - np.log(DECIDED["base", "linear", at]) for at in ("100k", "200k")]
    assert linear.cell.cell == OVER_TRAINING and linear.beside is not None and linear.beside.cell == "200k"
    assert linear.compared.size == pytest.approx(np.exp(np.mean(logs)))
    assert linear.beside.compared is not None
    assert linear.beside.compared.size == pytest.approx(np.exp(np.mean(logs[1])))
    assert linear.cell.published == pytest.approx(np.sqrt(8 * 3.25)) and linear.word == HOLDS
    assert "over training" in sentence(results, linear) and "at the last step" in sentence(results, linear)
    titles = comparisons(results, {})["linear"].titles
    assert titles[-5:] == ["to Base, over training", "95 % interval", "verdict", "at 200k, no verdict", "95 % interval"]
    assert answer(results).startswith("Of 2 claims, 1 holds and 1 does not hold here over training. ")
    (cosine,) = (o for o in results.outcomes if o.cell.column.name == "cosine")  # one cell: the end is all there is
    assert cosine.cell.cell == "100k" and cosine.beside is None


def test_rows_within_the_margin_are_equal() -> None:
    near = {**DECIDED, ("ours", "linear", "200k"): [value * (1 + 0.002 * (i - 2)) for i, value in enumerate(BASE)]}
    results = made({key: near[key] for key in near if key[0] != "other"}, scale="ratio", margin=1.1)
    (outcome,) = (o for o in results.outcomes if o.cell.column.name == "linear")
    assert outcome.word == EQUAL and outcome.seeds is None
    assert "equal within 10 %" in sentence(results, outcome) and "1 ends in equality" in answer(results)
    narrow = made({key: near[key] for key in near if key[0] != "other"}, scale="ratio", margin=1.001)
    assert [o.word for o in narrow.outcomes if o.cell.column.name == "linear"] == [OPEN]


def test_a_diverged_seed_is_counted_and_left_out() -> None:
    lost = {**DECIDED, ("ours", "linear", "200k"): [*DECIDED["ours", "linear", "200k"][:4], 50.0]}
    results, clean = (made(numbers, scale="ratio") for numbers in (lost, DECIDED))
    assert results.diverged == {("ours", "linear"): (4,)} and clean.diverged == {}
    cell = results.cell(results.table.row("ours"), results.table.columns[0], "200k")
    assert cell is not None and cell.mean is not None and cell.compared is not None
    assert cell.mean.mean == pytest.approx(np.mean(lost["ours", "linear", "200k"][:4])) and cell.compared.n == 4
    assert comparisons(results, {})["linear"].notes == ["Ours: 1 of 5 seeds diverged (4) and is left out."]
    assert (
        "1 of 5 seeds diverged (4)"
        in dict(
            (o.cell.row.name + o.cell.column.name, t)
            for o, (_, t) in zip(results.outcomes, sentences(results), strict=True)
        )["ourslinear"]
    )


def test_a_number_below_0_elsewhere_brings_no_diverged_seed_back() -> None:
    """One value of another column made all ratios differences, and the collapsed seed a part of its mean."""
    numbers = {
        ("base", "linear", "200k"): [2.0, 2.1, 1.9, 2.0],
        ("ours", "linear", "200k"): [1.5, 1.6, 1.4, 300.0],
        ("base", "cosine", "100k"): [1.0, 1.1, 0.9, 1.0],
        ("ours", "cosine", "100k"): [1.0, 1.1, 0.9, -1e-4],
    }
    one = table(columns={"linear": {"at": [200_000]}, "cosine": {"at": [100_000]}}, rows={"base": {}, "ours": {}})
    found = summarise(values(one, numbers), "lower", "ratio")
    assert found.scale == "difference" and found.diverged == {("ours", "linear"): (3,)}
    assert found.cell(one.row("ours"), one.columns[0], "200k").compared.n == 3


def test_a_baseline_below_0_makes_no_seed_diverged() -> None:
    """A kernel distance of 0.01 is more than three times -0.01, and more than twice 0.001."""
    numbers = {
        ("base", "linear", "100k"): [0.002, 0.002, 0.002],
        ("base", "linear", "200k"): [-0.01, -0.01, -0.01],
        ("ours", "linear", "100k"): [0.001, 0.001, 0.001],
        ("ours", "linear", "200k"): [0.01, 0.0011, 0.0012],
    }
    one = table(columns={"linear": {"at": [100_000, 200_000]}}, rows={"base": {}, "ours": {}})
    assert summarise(values(one, numbers), "lower", "ratio").diverged == {}


def test_a_baseline_that_diverges_loses_the_pair() -> None:
    lost = {**DECIDED, ("base", "linear", "200k"): [*BASE[:4], 50.0]}
    results = made(lost, scale="ratio")
    assert results.diverged == {("base", "linear"): (4,)}
    (said,) = (said_of(results, o) for o in results.outcomes if o.cell.row.name + o.cell.column.name == "ourslinear")
    assert said.verdict.endswith("; 1 of the baseline diverged")


def test_common_latents_are_said_and_never_meet_those_of_the_seed() -> None:
    ours = values(table(), DECIDED).values
    common = [value._replace(latents="common") for value in ours]
    text = next(iter(comparisons(summarise(Values(table(), common), "lower"), {}).values())).legend
    assert "latents common to all seeds: the intervals leave out their effect" in text
    assert "latents" not in next(iter(comparisons(made(), {}).values())).legend
    with pytest.raises(ValueError, match="latents=by seed, common of the runs of paper/table9 must be one rule"):
        Values(table(), [common[0], *(value._replace(latents="by seed") for value in ours[1:])])
    before = per_seed_csv(common).replace(",latents", "").replace(",common", "")
    assert {value.latents for value in read_per_seed(before)} == {"common"}


@pytest.mark.parametrize("seeds", [2, 5])
def test_the_file_and_the_page_have_the_same_word_for_a_verdict(seeds: int) -> None:
    results = made({key: numbers[:seeds] for key, numbers in DECIDED.items()})
    lines = csv.DictReader(io.StringIO(table_csv(results)))
    words = {(line["row"], line["column"]): line["verdict"] for line in lines if line["decides"] == "1"}
    pages = comparisons(results, {})
    for outcome in results.outcomes:
        row, column = outcome.cell.row, outcome.cell.column
        at = pages[column.title].titles.index("verdict")
        (shown,) = (line[at].text for line in pages[column.title].lines if line[0].text == row.title)
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
    weak = {("base", "linear", "200k"): [0.0] * 3, ("ours", "linear", "200k"): [-0.7, -1.0, -1.3]}
    noise = {("other", "linear", "200k"): [3.0, -4.0, 1.0]}
    alone, beside = made(weak), made({**weak, **noise})
    assert any(cell.bold for cell in comparisons(alone, {})["linear"].lines[1])
    assert not any(cell.bold for cell in comparisons(beside, {})["linear"].lines[1])


def test_the_sentence_has_both_papers_and_our_numbers() -> None:
    said = dict(
        (o.cell.row.name + o.cell.column.name, text)
        for o, (_, text) in zip(made().outcomes, sentences(made()), strict=True)
    )
    assert said["ourslinear"].startswith("Ours, linear: the paper claims 3.25 against 5.00 of Base (FID); here −0.96 [")
    assert "] to Base at the last step (fd1k_digits, n = 5; −0.9" in said["ourslinear"]
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
        assert len(found) < 2 or " ± " in text or (text[0] in "[(" and text[-1] in "])"), text
    assert "fd1k_digits and the paper's FID have no common scale" in next(iter(shown.values())).legend


def test_the_answer_counts_the_claims() -> None:
    said = answer(made())
    assert said.startswith("Of 3 claims, 1 holds, 1 does not hold and 1 remains undecided here. A verdict would be")
    few = made({key: numbers[:2] for key, numbers in DECIDED.items()})
    assert answer(few) == "All 3 claims remain undecided here. A verdict takes at least 3 seeds."
    one = {("base", "linear", "200k"): [0.0] * 3, ("ours", "linear", "200k"): [-0.5, 0.4, -0.2]}
    both = made({**one, ("other", "linear", "200k"): [0.5, -0.6, 0.4]})
    assert answer(both).startswith("Both claims remain undecided here. There are 3 seeds, and about ")
    seeds = sorted(outcome.seeds for outcome in both.outcomes)
    assert f"about {seeds[0]:,} to {seeds[1]:,} would decide differences of the measured sizes." in answer(both)
    assert answer(made(one)).startswith("The claim remains undecided here. There are 3 seeds, and about ")


def test_a_column_may_have_a_baseline_of_its_own() -> None:
    columns = {"linear": {"at": [100_000, 200_000]}, "cosine": {"at": [100_000], "baseline": "ours"}}
    results = summarise(values(table(columns=columns), DECIDED), "", "difference")
    differences = {(c.row.name, c.column.name): c.compared for c in results.cells if c.compared and c.decides}
    assert differences.keys() == {("ours", "linear"), ("other", "linear"), ("base", "cosine")}
    base, ours = (DECIDED[name, "cosine", "100k"] for name in ("base", "ours"))
    assert differences["base", "cosine"].size == pytest.approx(np.mean(base) - np.mean(ours))
    (outcome,) = [o for o in results.outcomes if o.cell.column.name == "cosine"]
    assert outcome.claimed == "lower"  # published 4 below 4.5
    assert "the paper claims 4.00 against 4.50 of Ours (FID)" in sentence(results, outcome)
    shown = comparisons(results, {})
    assert shown["cosine"].titles[-3] == "to Ours, 100k" and shown["linear"].titles[-5] == "to Base, 200k"


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
        "difference",
    )
    (outcome,) = results.outcomes
    assert outcome.word == HOLDS and outcome.compared.size == pytest.approx(-59)


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
    assert shown.lines[1][shown.titles.index("verdict")].text == OPEN and f'"{OPEN}"' in shown.legend
    assert "no claim" not in str(shown)


def test_the_answer_where_the_paper_claims_nothing_or_nothing_is_compared() -> None:
    rows = {"base": {"title": "Base"}, "ours": {"title": "Ours"}, "other": {"title": "Other", "only": ["linear"]}}
    decided = summarise(values(table(rows=rows), DECIDED), "lower")
    first = "The paper makes no claim about these rows."
    assert answer(decided) == f"{first} 2 of the 3 rows differ from the baseline."
    few = {key: numbers[:2] for key, numbers in DECIDED.items()}
    assert answer(summarise(values(table(rows=rows), few), "lower")) == f"{first} A verdict takes at least 3 seeds."
    alone = summarise(values(table(rows=rows), {("base", "linear", "200k"): BASE}), "lower")
    assert answer(alone) == "No row can be compared with a baseline."
