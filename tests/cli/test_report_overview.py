"""`diffusion-lab report` without a folder."""

from __future__ import annotations

from pathlib import Path

from diffusion_lab.cli.main import main
from tests.reports.synthetic import write_run


def test_one_sweep_is_reported_at_once_and_several_are_listed(in_folder: Path, capsys) -> None:
    for seed in (0, 1):
        write_run(Path("runs", "sweep-digits", f"uniform-{seed}"), "uniform", seed, steps=250)
    assert main(["report"]) == 0
    assert "page: runs/report.html" in capsys.readouterr().out and Path("runs/report.html").is_file()
    write_run(Path("runs", "later", "logit_normal-0"), "logit_normal", 0, steps=250, result=None)
    write_run(Path("runs", "stratified-0"), "stratified", 0, steps=250, result="failed")
    assert main(["report"]) == 0
    said = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in said if line.startswith("  ")}
    assert rows.keys() == {"runs/sweep-digits", "runs/later", "runs"}
    assert rows["runs/sweep-digits"].startswith("2 done 2026-01-01 00:00")
    assert rows["runs"].startswith("2 done, 1 failed")  # what its report is about
    assert said[-1].startswith("next: diffusion-lab report runs")
    assert main(["report", "--table", "t.md"]) == 2
    error = capsys.readouterr().err
    assert "FOLDER must be given with --table, because there are 3 folders" in error and error.count("\n") == 1
    assert not Path("t.md").exists()


def test_no_runs_is_one_sentence(in_folder: Path, capsys) -> None:
    assert main(["report"]) == 2
    assert capsys.readouterr().err.startswith("config error: folder=runs must be an existing folder")
