"""Completion of run folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.reports.synthetic import write_run

ONE, TWO = "runs/digits-uniform-s0-1a", "runs/sweep-digits/digits-speed-s0-2b"


@pytest.fixture
def runs(in_folder: Path) -> Path:
    write_run(Path(ONE), "uniform", 0, steps=250)
    write_run(Path(TWO), "logit_normal", 0, steps=250)
    Path("runs", "notes").mkdir()
    Path("data", "images").mkdir(parents=True)
    return in_folder


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("evaluate run=", ["run=runs/"]),
        ("evaluate run=runs/", [f"run={ONE}", "run=runs/sweep-digits/"]),
        ("sample run=runs/sweep-digits/d", [f"run={TWO}"]),
        (f"analyze analysis=slots run={ONE},runs/s", [f"run={ONE},runs/sweep-digits/"]),
        ("train resume=runs/d", [f"resume={ONE}"]),
        ("train sampler=mode init_from=runs/d", [f"init_from={ONE}"]),
        ("plan experiment=demo pilot=runs/s", ["pilot=runs/sweep-digits/"]),
        ("report r", ["runs/"]),
        ("compare runs/ runs/d", [ONE]),
        ("report data", []),
        ("evaluate run=nothing/", []),
        ("doctor ", []),  # not "doctor" again
        ("show sampler=uni", []),
    ],
)
def test_a_word_becomes_the_folders_that_hold_runs(
    line: str, expected: list[str], runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", f"diffusion-lab {line}")
    assert main(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out.split() == expected
