"""The table as a file to commit."""

import json

import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.reports import compare, group_runs, read_runs, write_table
from diffusion_lab.reports.pages.files import portable, tex
from tests.reports.synthetic import write_run, write_sweep

COMMAND = "diffusion-lab report runs/sweep --table digits.md"


def write(path, sweep, command=COMMAND):
    folder = read_runs(sweep)
    table = compare(group_runs(folder.runs), "fd1k_digits")
    return write_table(path, folder, {"digits": table}, command).read_text(encoding="utf-8"), table


def test_markdown_has_table_legend_and_commands_and_no_heading(sweep, tmp_path):
    text, table = write(tmp_path / "digits.md", sweep)
    rows, said, legend, unfinished, commands = text.split("\n\n")
    assert said == table.answer and said.startswith("With 2 seeds there is no verdict")
    assert rows.startswith("| method | runs |") and len(rows.splitlines()) == 2 + len(table.lines)
    assert legend == table.legend and unfinished == "not finished: 1 failed, 1 running, 1 lost, 1 pending"
    assert commands.splitlines() == [
        "    diffusion-lab train -m sampler=uniform,logit_normal,loss_second_moment,stratified seed=0,1,2",
        f"    {COMMAND}",
    ]
    assert not any(line.startswith("#") for line in text.splitlines()) and text.endswith("\n")
    assert [path.name for path in tmp_path.iterdir()] == ["digits.md"]  # nothing temporary is left


def test_latex_has_the_same(sweep, tmp_path):
    text, table = write(tmp_path / "digits.tex", sweep)
    numbers = "r" * (len(table.titles) - 2)
    assert text.startswith(rf"\begin{{tabular}}{{ll{numbers}}}") and r"95 \% interval" in text
    assert r"\texttt{diffusion-lab report runs/sweep -{}-table digits.md}" in text
    assert r"sampler=uniform,\allowbreak{}logit\_normal,\allowbreak{}loss" in text
    assert text.count("{") == text.count("}") and rf"\par\noindent {tex(table.answer)}" in text


@pytest.mark.slow
def test_the_same_runs_give_the_same_bytes_wherever_they_lie(tmp_path):
    texts = []
    for place in ("here", "else/where"):
        (tmp_path / place / "sweep").mkdir(parents=True)
        write_sweep(tmp_path / place / "sweep")
        arguments = ["--out", str(tmp_path / "page.html"), "--table", str(tmp_path / place / "digits.md")]
        assert main([str(tmp_path / place / "sweep"), *arguments]) == 0
        texts.append((tmp_path / place / "digits.md").read_bytes())
    assert texts[0] == texts[1] and str(tmp_path).encode() not in texts[0]
    assert texts[0].decode().splitlines()[-1] == "    diffusion-lab report sweep --table digits.md"


def test_runs_without_a_sweep_have_their_own_commands(tmp_path):
    for seed in range(2):
        write_run(tmp_path / "runs" / str(seed), "uniform", seed, steps=250)
    text, _ = write(tmp_path / "t.md", tmp_path / "runs")
    assert "    diffusion-lab train sampler=uniform seed=0\n    diffusion-lab train sampler=uniform seed=1\n" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("report {cwd}/runs/a --table {cwd}/x.md", "report runs/a --table x.md"),
        ("train a.root=/data/cifar b=[/x/1,/x/2] 'c=/y z'", "train a.root=cifar b=[1,2] 'c=y z'"),
        ("images/s n/a a=${b}/c https://x.org/y runs/z ../w", "images/s n/a a=${b}/c https://x.org/y runs/z ../w"),
    ],
)
def test_absolute_paths_are_shortened(tmp_path, monkeypatch, text, said):
    monkeypatch.chdir(tmp_path)
    assert portable(text.format(cwd=tmp_path, b="{b}")) == said


def test_a_label_with_a_path_is_shortened_too(tmp_path):
    for k in range(2):
        network = {"_target_": "x.UNet", "weights": f"/home/me/{k}.pt"}
        write_run(tmp_path / str(k), "uniform", 0, steps=250, network=network)
    text, _ = write(tmp_path / "t.md", tmp_path)
    assert "uniform weights=0.pt" in text and "/home" not in text


def test_another_suffix_is_refused_before_anything_is_written(sweep, tmp_path, capsys):
    arguments = ["--out", str(tmp_path / "page.html"), "--table", str(tmp_path / "t.csv")]
    assert main([str(sweep), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "t.csv must end in .md or .tex" in error and not list(tmp_path.iterdir())


def test_a_sweep_that_has_not_begun_has_no_table(tmp_path, capsys):
    job = {"dir": "a", "overrides": ["seed=0"], "config_hash": "x"}
    (tmp_path / "sweep.json").write_text(json.dumps({"name": "s", "commands": ["c"], "jobs": [job]}))
    assert main([str(tmp_path), "--table", str(tmp_path / "t.md")]) == 2
    assert "must have a run that has begun" in capsys.readouterr().err
