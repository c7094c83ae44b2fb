"""The results of papers' tables in experiments/PAPER/results/SCALE/TABLE, against the values by seed beside them."""

import re
from pathlib import Path

import pytest

from diffusion_lab.cli.table_files import conf_folders, load_table, table_names
from diffusion_lab.tables.curves import differences
from diffusion_lab.verdicts import CLAIM_SEEDS
from experiments.cells import FOLDER, result_files, results_of
from tests.tables.in_numpy import check_intervals

PLACES = sorted(path.parent.relative_to(FOLDER) for path in FOLDER.glob("*/results/*/*/per_seed.csv"))
PAPERS = sorted({Path(place.parts[0]) / "README.md" for place in PLACES})


def test_every_table_is_there_at_smoke_scale() -> None:
    there = {f"{place.parts[0]}/{place.parts[3]}" for place in PLACES if place.parts[2] == "smoke"}
    tables = set(table_names(conf_folders(None)))
    assert not tables - there, "diffusion-lab reproduce PAPER/NAME scale=smoke --out experiments"
    assert not there - tables, "results of a table that is gone"


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_committed_table_is_what_its_values_say(place: Path) -> None:
    paper, _, scale, name = place.parts
    folder, results = FOLDER / place, results_of(f"{paper}/{name}", scale)
    said, values = ((folder / file).read_text(encoding="utf-8") for file in ("table.csv", "per_seed.csv"))
    check_intervals(load_table(f"{paper}/{name}", conf_folders(None)), said, values)
    for file, text in result_files(folder, figures=place == PLACES[0]).items():  # a figure's bytes are not compared
        stored = (folder / file).read_text(encoding="utf-8")
        assert file.endswith(".svg") or stored == text, "write it with `make pages`"
    page = (folder / "table.md").read_text(encoding="utf-8")
    if all(cell.mean.n < CLAIM_SEEDS for cell in results.cells if cell.mean):
        assert page.count("**") == 2  # the answer
    for image in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page):
        assert (folder / image).is_file()


def test_a_figure_names_what_the_rows_are_compared_with_and_whether_claims_hold() -> None:
    """Three columns have three baselines here; one table's rows have one."""
    (several,) = differences(results_of("clts_mdlrc/figure6", "mini")).values()
    (one,) = differences(results_of("adaptive_beta/table1", "mini")).values()
    text = several.svg.decode()
    assert (
        "<!-- ← better      ratio of fd2k_digits to the baseline of its column over training      worse → -->" in text
    )
    assert "claim higher: holds here -->" in text and "claim lower: equal -->" in text
    assert "ratio of fd2k_digits to DDPM over training" in one.svg.decode()
    assert "claim higher: does not hold here -->" in one.svg.decode()
    assert "hollow: not decided. Right: the numbers, which side the paper claims, and whether" in one.caption


@pytest.mark.parametrize("page", [*(place / "table.md" for place in PLACES), *PAPERS], ids=str)
def test_a_page_begins_with_the_answer_in_two_sentences_and_a_figure(page: Path) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    answer, figure, table = (text.index(mark) for mark in ("\n**", "\n![", "\n| "))
    assert answer < figure < table
    said = text[answer:figure].split("**")[1]
    assert len(re.findall(r"[a-z0-9)]\.(?= [A-Z]|$)", said)) == 2, said
