"""What one more hour would buy, at the end of a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.reports.comparison.cells import next_hour_words
from diffusion_lab.reports.comparison.labels import group_runs
from diffusion_lab.reports.comparison.question import Question
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.runs.find import read_runs
from diffusion_lab.runs.pilot import what_next
from tests.reports.curves import FD, STEPS, power_law, write_curves

OWN = {"seed": "the run's"}  # latents
NOISE = np.random.default_rng(0).normal(0, 0.05, (2, 3))


def write_all(folder: Path, seeds: int = 3, latents: dict | None = None, step_seconds: float | None = 0.01) -> Path:
    for row, method in enumerate(("uniform", "logit_normal")):
        for seed in range(seeds):
            level = np.exp(NOISE[row, seed])
            where = folder / f"{method}-{seed}"
            metric, protocol = power_law(STEPS, level=level), latents or OWN
            write_curves(where, method, seed, metric, protocol=protocol, step_seconds=step_seconds)
    return folder


def words(folder: Path, metric: str = FD, estimand: str = "end") -> str:
    return next_hour_words(tabulate(group_runs(read_runs(folder).runs), metric, Question(estimand)))


@pytest.mark.usefixtures("without_figures")
def test_the_report_ends_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_all(tmp_path)
    rows = [group.done for group in group_runs(read_runs(tmp_path).runs)]
    said = str(what_next(rows, FD))
    assert " h more buy " in said and words(tmp_path) == said
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index(said) > max(i for i, line in enumerate(lines) if "logit_normal" in line)
    assert f"<p>{said}</p>" in (tmp_path / "report.html").read_text()


def test_it_is_of_the_estimand_and_of_the_runs_that_were_compared(tmp_path: Path) -> None:
    write_all(tmp_path)
    rows = [group.done for group in group_runs(read_runs(tmp_path).runs)]
    assert words(tmp_path, estimand="training") == str(what_next(rows, FD, "training"))
    whole = words(tmp_path)
    write_curves(tmp_path / "other", "stratified", 0, power_law(STEPS), protocol={"samples": 500})
    assert words(tmp_path) == whole  # measured differently
    lost = power_law(STEPS) * np.array([1.0] * 7 + [90.0])
    write_curves(tmp_path / "lost", "uniform", 3, lost, protocol=OWN, step_seconds=0.01)
    write_curves(tmp_path / "with", "logit_normal", 3, power_law(STEPS), protocol=OWN, step_seconds=0.01)
    assert words(tmp_path) == whole  # diverged


@pytest.mark.parametrize(
    "made",
    [{"seeds": 1}, {"step_seconds": None}, {"latents": {"seed": 0}}],
    ids=["one seed", "no clock", "latents that all seeds share, as in 0.1.0"],
)
def test_it_is_silent_where_the_runs_do_not_tell(tmp_path: Path, made: dict) -> None:
    assert words(write_all(tmp_path, **made)) == ""


def test_it_is_silent_about_losses_and_differences(tmp_path: Path) -> None:
    assert words(write_all(tmp_path)) and words(tmp_path, "val/loss") == ""
    for path in tmp_path.glob("*/evaluations.jsonl"):
        path.write_text(path.read_text().replace('"better"', '"compared_by": "difference", "better"'))
    assert words(tmp_path) == ""
