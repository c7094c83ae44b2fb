"""Training time and images per second, with a clock that the test moves."""

from __future__ import annotations

import json
import threading
import time
import types
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from diffusion_lab.callbacks import progress
from diffusion_lab.callbacks.evaluation import EvaluationCallback
from diffusion_lab.callbacks.progress import Progress
from diffusion_lab.loggers import JsonlLogger
from diffusion_lab.reports import read_runs
from diffusion_lab.timesteps import StepRecord

RECORD = StepRecord(torch.zeros(1), {}, torch.zeros(1, dtype=torch.int64), torch.ones(1), torch.ones(1))


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "perf_counter", lambda: self.now)


def started(callback: Progress, step: int, *others: Any) -> Any:
    """A trainer at `step` with 12 images per step, on which the callback, beside others, has begun."""
    data = types.SimpleNamespace(batch_size=12)
    strategy = types.SimpleNamespace(root_device=torch.device("cpu"))
    given = {"datamodule": data, "callbacks": [callback, *others], "loggers": [], "strategy": strategy, "world_size": 1}
    trainer: Any = types.SimpleNamespace(global_step=step, max_steps=20, is_global_zero=True, **given)
    module: Any = types.SimpleNamespace(after_step=[])
    callback.on_train_start(trainer, module)
    return trainer


def test_seconds_add_up_over_resumes_and_images_per_second_are_since_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    first = Progress(str(tmp_path), every=1.0, line_every=5.0)
    trainer = started(first, 0)
    module: Any = None
    for step in range(1, 9):  # 8 steps of 2 s
        clock.now += 2.0
        first.on_step_end(trainer, module, step, [RECORD])
    assert first.elapsed() == 16.0 and first.images_per_second() == 8 * 12 / 16
    saved = first.state_dict()
    clock.now += 500.0  # nobody trains
    second = Progress(str(tmp_path), every=1.0, line_every=5.0)
    second.load_state_dict(saved)
    assert second.elapsed() == 16.0 and second.images_per_second() == 0.0
    trainer = started(second, 8)
    for step in range(9, 21):  # 12 steps of 0.5 s
        clock.now += 0.5
        second.on_step_end(trainer, module, step, [RECORD])
    assert second.elapsed() == 22.0 and second.images_per_second() == 12 * 12 / 6  # since this start
    lines = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert (lines[-1]["step"], lines[-1]["images"], lines[-1]["seconds"]) == (20, 240, 22.0)
    assert [line["images_per_second"] for line in lines] == [6.0] * 3 + [24.0] * 2
    assert "images/s 24" in capsys.readouterr().out


def test_a_first_step_that_takes_long_is_waited_for_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("diffusion_lab.progress.NAMED_AFTER", 0.0)
    before = set(threading.enumerate())  # pytest's workers and earlier tests have threads of their own, which may end
    callback = Progress(str(tmp_path), every=1.0, line_every=5.0)
    zero: Any = types.SimpleNamespace(is_global_zero=True)
    module: Any = None
    callback.setup(zero, module, "fit")
    time.sleep(0.05)
    trainer = started(callback, 0)
    time.sleep(0.05)
    for step in (1, 2):
        callback.on_step_end(trainer, module, step, [RECORD])
    assert capsys.readouterr() == ("", "preparing the training\nwaiting for the first step\n")
    assert set(threading.enumerate()) <= before


def test_a_slow_first_step_is_not_taken_for_the_speed_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`compile=true` makes its kernels in it: 24 s and then 100 steps of 0.02 s were shown as 2 h to go."""
    clock, module = Clock(monkeypatch), None
    callback = Progress(str(tmp_path), every=1.0, line_every=5.0)
    trainer = started(callback, 0)
    for step in range(1, 21):
        clock.now += 60.0 if step == 1 else 1.0
        callback.on_step_end(trainer, module, step, [RECORD])
    lines = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 6, 11, 16, 20]
    assert [line["eta_seconds"] for line in lines] == [19 * 60, 14, 9, 4, 0]
    assert [line["images_per_second"] for line in lines] == [0.2, *[12.0] * 4]


def test_an_evaluation_before_the_first_step_is_not_taken_off_the_time_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run begins with the evaluation that it owes."""
    clock, module = Clock(monkeypatch), None
    callback, evaluation = Progress(str(tmp_path), every=1.0, line_every=5.0), Evaluating(clock)
    trainer = started(callback, 10, evaluation)
    evaluation.on_step_end(trainer, module, 8, [])  # of 30 s
    for step in range(11, 18):
        clock.now += 2.0
        callback.on_step_end(trainer, module, step, [RECORD])
    lines = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert (lines[-1]["step"], lines[-1]["eta_seconds"]) == (17, 6.0)


class Evaluating(EvaluationCallback):
    """An evaluation of 30 s after every fourth step."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def due(self, trainer: Any, step: int) -> bool:
        return step % 4 == 0

    def evaluate(self, trainer: Any, module: Any, step: int) -> None:
        self.clock.now += 30.0


def test_evaluations_are_no_training_time_also_over_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    module: Any = None
    saved: dict[str, Any] = {"seconds": 0.0, "evaluating": 0.0}
    for first in (0, 10):
        callback, evaluation = Progress(str(tmp_path), every=1.0, line_every=4.0), Evaluating(clock)
        callback.load_state_dict(saved)
        trainer = started(callback, first, evaluation)
        for step in range(first + 1, first + 11):  # of 2 s
            clock.now += 2.0
            callback.on_step_end(trainer, module, step, [RECORD])
            evaluation.on_step_end(trainer, module, step, [])
        saved = callback.state_dict()
    assert saved == {"seconds": 40.0 + 5 * 30, "evaluating": 150.0}
    (run,) = read_runs(with_record(tmp_path)).runs
    assert run.training_clock is not None
    steps = np.array([1, 4, 7, 20, 25])
    np.testing.assert_allclose(run.training_clock.at(steps), 2.0 * steps)


def with_record(folder: Path) -> Path:
    """The folder, as one that `read_runs` takes for a run."""
    (folder / "run.json").write_text("{}")
    return folder


def test_the_report_divides_all_images_by_all_seconds(tmp_path: Path) -> None:
    from tests.reports.synthetic import write_run

    write_run(tmp_path / "run", "uniform", 0, steps=250)
    (tmp_path / "run" / "timing.jsonl").write_text(json.dumps({"step": 20, "images": 240, "seconds": 22.0}) + "\n")
    (run,) = read_runs(tmp_path).runs
    assert run.images_per_second == pytest.approx(240 / 22)


class Reading(AbstractContextManager):
    """Reads a logger's clock at the end of an evaluation, while it is still the present one."""

    def __init__(self, logger: JsonlLogger, read: list[float]) -> None:
        self.logger, self.read = logger, read

    def __exit__(self, *error: Any) -> None:
        assert self.logger.clock is not None
        self.read.append(self.logger.clock())


def test_the_loggers_clock_stops_during_an_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an evaluation logs has the time before it, as timing.jsonl's training_seconds."""
    clock, logger, module = Clock(monkeypatch), JsonlLogger(tmp_path), types.SimpleNamespace(after_step=[])
    callback, evaluation = Progress(str(tmp_path)), Evaluating(clock)
    trainer = started(callback, 0, evaluation)
    trainer.loggers.append(logger)
    callback.on_train_start(trainer, module)
    assert logger.clock is not None
    read: list[float] = []
    clock.now += 8.0
    evaluation.around = lambda *_: Reading(logger, read)
    evaluation.on_step_end(trainer, module, 4, [])
    assert read == [8.0] and logger.clock() == 8.0 and callback.elapsed() == 38.0
