"""Of many methods, figures and samples show some, and the table with its verdicts all."""

import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.reports import group_runs, make_report, page, read_runs, sections_of
from diffusion_lab.reports.comparison.cells import compare
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.comparison.shown import FEW, Choice, shown
from diffusion_lab.reports.figures.ratios import effects_over_training
from tests.reports.curves import FD, STEPS, power_law, write_curves

METHODS = FEW + 2  # of learning rate 1, 2, .., of which the first is the baseline and each next one is worse


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("many")
    for k in range(1, METHODS + 1):
        for seed in range(3):
            level = 1 + 0.1 * k + 0.001 * ((k * 7 + seed * 5) % 11)
            optimizer = {"_target_": "torch.optim.Adam", "lr": k}
            write_curves(made / f"{k:02d}-{seed}", "uniform", seed, power_law(STEPS, level=level), optimizer=optimizer)
    return made


@pytest.fixture(scope="module")
def table(folder):
    return tabulate(group_runs(read_runs(folder).runs), FD)


def rates(groups):
    return [group.config["optimizer"]["lr"] for group in groups]


def test_the_baseline_the_best_and_the_worst_are_shown(table):
    assert rates(shown(table)) == [1, 2, 3, 4, 5, METHODS - 1, METHODS]
    assert rates(shown(table, Choice(top=8))) == list(range(1, 10))
    assert rates(shown(table, Choice(["uniform lr=9"]))) == [1, 9]
    assert rates(shown(table.of(shown(table)))) == rates(shown(table))  # of few, all


def test_verdicts_and_intervals_are_those_of_all_rows(folder, table):
    some = table.of(shown(table))
    assert [row.effect for row in some.rows] == [row.effect for row in table.rows if row.group in shown(table)]
    alone = tabulate([row.group for row in some.rows], FD)
    assert alone.rows[1].effect.size == some.rows[1].effect.size and alone.rows[1].effect != some.rows[1].effect


def test_intervals_over_training_are_those_of_all_rows(table, drawn):
    def of_first(table, groups=None):
        effects_over_training(table, groups)
        return drawn[-1].axes[0].collections[0].get_paths()[0].vertices.tolist()

    some = [row.group for row in table.rows][:3]
    assert of_first(table, some) == of_first(table) != of_first(table.of(some))


def test_the_page_has_all_rows_and_says_what_is_shown(folder, without_figures):
    found = read_runs(folder)
    made = make_report(found, sections_of(found.runs))
    text = page(made)
    assert text.count('<table class="numbers large">') == 1 and text.count("<script>") == 1
    said = f"those of 7 of the {METHODS} methods: uniform lr=1, the best 4 by {FD} and the worst 2;"
    assert said in text and text.count("background:transparent") == 7
    assert len(made.parts[0].table.lines) == METHODS and len(made.parts[0].brief.lines) == 7
    assert made.parts[0].table == compare(made.parts[0].section.groups, FD)
    assert "<script" not in page(make_report(found, sections_of(found.runs[: 3 * FEW])))


def test_the_command_prints_what_is_asked_for(folder, tmp_path, capsys, without_figures):
    out = ["--out", str(tmp_path / "page.html")]
    assert main([str(folder), "--top", "2", *out]) == 0
    said = capsys.readouterr().out
    assert (
        f"{METHODS - 3} more rows are on the page" in said
        and "\nuniform lr=4 " not in said
        and "\nuniform lr=3 " in said
    )
    assert main([str(folder), "--only", "lr=99", *out]) == 2
    assert "only=lr=99 must be the name of a row" in capsys.readouterr().err
    for words in (["--top", "2", "--only", "lr=3"], ["--every", "3"]):
        assert main([str(folder), *words, *out]) == 2
        assert "must be left out with" in capsys.readouterr().err
    assert main([str(folder), "--figures", str(tmp_path / "page.html"), *out]) == 2
    assert "page.html must be a folder that can be written to" in capsys.readouterr().err
    assert main([str(folder), "--top", "0", *out]) == 2
