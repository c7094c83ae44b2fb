"""What a sweep shows: what distinguishes its jobs, where they stand, and how long the whole still takes."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from hydra_plugins.diffusion_lab_launcher import _screen
from hydra_plugins.diffusion_lab_launcher._job_progress import JobProgress, job_progress, sweep_rest
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher._screen import Screen, differing
from tests.terminal import on_a_terminal


def job(folder: Path, index: int = 0, overrides: tuple[str, ...] = ("seed=0",), steps: int = 100) -> Job:
    return Job(index, list(overrides), OmegaConf.create({"max_steps": steps}), folder)


def told(step: int, rest: float | None = None, trained: float = 0.0) -> JobProgress:
    return JobProgress(step, 100, trained, rest, "")


def test_a_job_is_called_by_what_not_all_jobs_have() -> None:
    jobs = [["lr=1", "seed=0"], ["lr=1", "seed=1"], ["lr=1", "seed=1", "sampler=speed"]]
    assert differing(jobs, ["a", "b", "c"]) == ["seed=0", "seed=1", "seed=1 sampler=speed"]


def test_jobs_that_their_words_do_not_distinguish_have_their_names() -> None:
    assert differing([["lr=1"]], ["digits-s0"]) == ["digits-s0"]
    assert differing([["seed=0"], ["seed=0"], ["seed=1"]], ["a", "b", "c"]) == ["a", "b", "seed=1"]


def test_the_rest_of_a_sweep_is_that_of_its_slots() -> None:
    """Two jobs of 100 steps took 50 s each; of two that run one has 10 s left, the other is 20 s old and silent; three
    wait, the last of them twice as long. The slots are free after 10 and 30, 60 and 30, 60 and 80, 160 and 80 s."""
    running = [(40.0, 100, told(80, 10.0)), (20.0, 100, told(0))]
    assert sweep_rest(running, [100, 100, 200], [(50.0, 100), (50.0, 100)], 2) == pytest.approx(160.0)


def test_the_rest_counts_the_slots_and_not_the_jobs_that_run_at_the_moment_one_ends() -> None:
    """16 jobs of 10 s in 2 slots, offset by 5 s: when job k of them ends, another is half done, and the rest is that of
    the 16 - k - 1 that wait, from now on in one slot and from 5 s on in the other."""
    for ended in range(1, 16):
        waiting = 16 - ended - 1
        rest = sweep_rest([(5.0, 100, told(50, 5.0))], [100] * waiting, [(10.0, 100)] * ended, 2)
        assert rest == pytest.approx(max(10 * -(-waiting // 2), 5 + 10 * (waiting // 2)))
    for ended in range(2, 16, 2):  # both end at once
        assert sweep_rest([], [100] * (16 - ended), [(10.0, 100)] * ended, 2) == pytest.approx(10 * (16 - ended) / 2)


def test_the_line_of_a_job_that_ends_has_the_rest_over_all_slots(tmp_path: Path, capsys) -> None:
    jobs = [job(tmp_path / f"run{i}", i, (f"seed={i}",)) for i in range(16)]
    with Screen(jobs, tmp_path, slots=2) as screen:
        for k in range(0, 16, 2):
            screen.show([(one, time.time() - 10) for one in jobs[k : k + 2]])
            for one in jobs[k : k + 2]:
                screen.finished(Outcome(one, "done", seconds=10.0))
    rests = re.findall(r"eta (?:(\d) min )?(\d+) s", capsys.readouterr().out)
    found = [60 * int(minutes or 0) + int(seconds) for minutes, seconds in rests]
    assert found == [10 * pairs for pairs in (7, 6, 5, 4, 3, 2, 1) for _ in range(2)]


def test_the_rest_is_at_least_that_of_the_longest_job_and_nothing_before_any_is_known() -> None:
    running = [(10.0, 100, told(1, 90.0)), (99.0, 100, told(99, 1.0))]
    assert sweep_rest(running, [], [], 2) == 90.0
    assert sweep_rest([(5.0, 100, told(0))], [100], [], 1) is None
    assert sweep_rest([(5.0, 100, told(0))], [100], [(20.0, 100)], 1) == pytest.approx(15 + 20)


def test_the_rest_of_a_sweep_that_goes_on_leaves_out_what_was_trained_before(tmp_path: Path, capsys) -> None:
    """The first of four jobs of 100 steps went on at step 98, took 12 s with its start and evaluation, and 100 s in
    all; the second is done, of the third 70 steps are left, and the fourth begins again."""
    jobs = [job(tmp_path / f"run{i}", i, (f"seed={i}",)) for i in range(4)]
    for one, (step, seconds) in zip(jobs, ((98, 90), (100, 100), (30, 30), (60, 60)), strict=True):
        one.folder.mkdir()
        (one.folder / "timing.jsonl").write_text(f'{{"step": {step}, "seconds": {seconds}.0}}\n')
    (jobs[1].folder / "result.json").write_text('{"status": "done", "step": 100}')
    jobs[3].config.anew = True
    assert jobs[1].is_done()
    with Screen(jobs, tmp_path) as screen:
        (jobs[0].folder / "timing.jsonl").write_text('{"step": 100, "seconds": 100.0}\n')
        screen.finished(Outcome(jobs[0], "done", seconds=12.0))
    assert capsys.readouterr().out.splitlines()[1].endswith("seed=0  12 s  eta 2 min 50 s")


def test_a_running_job_that_goes_on_tells_the_time_of_a_step_from_all_of_it() -> None:
    """It went on at step 90 of 100 after 90 s and has 5 s left of its 10; another waits, with 100 steps."""
    assert sweep_rest([(5.0, 10, told(95, 5.0, 95.0))], [100], [], 1) == pytest.approx(5 + 100)


def test_a_job_stands_where_it_has_told(tmp_path: Path) -> None:
    assert job_progress(job(tmp_path), time.time()) == told(0)
    (tmp_path / "timing.jsonl").write_text('{"step": 40, "seconds": 44.5, "eta_seconds": 60.0}\n')
    (tmp_path / "evaluations.jsonl").write_text('{"step": 20, "name": "fd1k_digits", "value": 0.51505}\n')
    written = (tmp_path / "timing.jsonl").stat().st_mtime
    os.utime(tmp_path / "timing.jsonl", (written - 20, written - 20))
    step, steps, trained, rest, metric = job_progress(job(tmp_path), written - 30)
    assert (step, steps, trained, metric) == (40, 100, 44.5, "fd1k_digits 0.5151") and rest == pytest.approx(40, abs=2)
    assert job_progress(job(tmp_path), written).rest is None  # it told that before it was started again


def test_failures_are_told_by_cause_and_by_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [job(tmp_path / f"run{i}", i, ("lr=1", f"seed={i}")) for i in range(4)]
    outcomes = [Outcome(jobs[0], "done", seconds=9.0)]
    outcomes += [Outcome(one, "failed", "NotFinite: the loss is not finite") for one in jobs[1:3]]
    outcomes += [Outcome(jobs[3], "not started")]
    Screen(jobs, tmp_path).summary(outcomes)
    said = capsys.readouterr().out
    assert "3 of 4 jobs are not done" in said and said.count("NotFinite") == 1 and "lr=1" not in said
    assert re.search(r"NotFinite.*\n    seed=1\n +log: .*run1/train.log\n    seed=2\n +log: .*run2/train.log\n", said)
    assert re.search(r"not started\n    seed=3\nThe same command", said)


@pytest.mark.parametrize(("value", "words"), [(None, "not finite"), (0.51514, "0.5151")])
def test_a_metric_that_is_not_finite_ends_no_sweep(
    value: float | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = job(tmp_path / "run")
    one.folder.mkdir()
    (one.folder / "result.json").write_text(json.dumps({"status": "done", "metrics": {"metrics/contrast": value}}))
    with Screen([one], tmp_path) as screen:
        screen.finished(Outcome(one, "done", seconds=1.0))
    assert f"contrast {words}" in capsys.readouterr().out


def test_a_log_file_has_the_rest_in_each_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [job(tmp_path / f"run{i}", i, (f"seed={i}",)) for i in range(3)]
    with Screen(jobs, tmp_path) as screen:
        screen.finished(Outcome(jobs[0], "done", seconds=100.0))
    assert capsys.readouterr().out.splitlines()[1] == "[1/3] done        seed=0  1 min 40 s  eta 3 min 20 s"


def test_a_log_file_names_the_jobs_that_run_when_nothing_else_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep of long jobs was silent from one end to the next."""
    now = [1000.0]
    monkeypatch.setattr(_screen.time, "monotonic", lambda: now[0])
    jobs = [job(tmp_path / f"run{i}", i, (f"seed={i}",)) for i in range(12)]
    for one in jobs[:10]:
        one.folder.mkdir()
        (one.folder / "timing.jsonl").write_text(f'{{"step": {40 + one.index}}}\n')
    running = [(one, time.time()) for one in jobs[:10]]
    with Screen(jobs, tmp_path, slots=10) as screen:
        for seconds in (5, 5, 30, 29, 1):  # 10, 40, 69 and 70 s after the first line
            now[0] += seconds
            screen.show(running[:2])
        screen.finished(Outcome(jobs[0], "done", seconds=70.0))
        now[0] += 59
        screen.show(running[1:])
        now[0] += 1
        screen.show(running[1:])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("12 jobs in ")
    assert lines[:2] == ["[ 0/12] running     seed=0 40/100, seed=1 41/100"] * 2
    assert lines[2].startswith("[ 1/12] done        seed=0  1 min 10 s")
    assert lines[3].startswith("[ 1/12] running     seed=1 41/100, ") and ", seed=8 48/100, 1 more  eta " in lines[3]
    assert len(lines) == 4


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, pytest.param(80, marks=pytest.mark.exhaustive)])
def test_a_terminal_has_a_table_of_the_jobs_that_run(tmp_path: Path, columns: int) -> None:
    settings = [
        "dataset=digits",
        "network=unet_tiny",
        "network.base_channels=8",
        "trainer.accelerator=cpu",
        "metrics=none",
    ]
    settings += ["solver.steps=2", "dataset.val_images=32", "batch_size=16"]
    sweep = ["max_steps=120", "callbacks.progress.line_every=0.2", "seed=0,1", "sampler=uniform,speed"]
    command = [sys.executable, "-m", "diffusion_lab.cli.main", "train", "-m", *settings, *sweep]
    seen = on_a_terminal([*command, f"paths.root={tmp_path}", "hydra.launcher.n_jobs=2"], columns)
    assert seen.code == 0, seen.last
    screens = [text.splitlines() for _, text in seen.shown_at]
    tables = [lines for lines in screens if any(line.startswith("running ") for line in lines)]
    rows = [line for lines in tables for line in lines if re.match(r"seed=\d sampler=(uniform|speed) +\d+/120", line)]
    assert any(re.search(r" [1-9]\d*/120 +\d.*(s|min)", row) for row in rows), rows[-1:]
    bars = [line for lines in tables for line in lines if "/4 done" in line]
    assert any(re.search(r"━.* 1/4 done, .*waiting  eta", line) for line in bars) or any("eta" in b for b in bars)
    assert not any(line.startswith("running ") for line in seen.last)  # it leaves the lines of the jobs alone
    assert sum(bool(re.match(r"\[\d/4\] done  ", line)) for line in seen.last) == 4
    assert json.loads(next(tmp_path.glob("*/*/result.json")).read_text())["status"] == "done"
