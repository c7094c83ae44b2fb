"""An evaluation that is stopped or killed is owed: the resumed run measures first, and ends as if nothing had been."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from diffusion_lab.training.checkpoint_io import load
from tests.harness import Child, configuration, differences, final_state, train_child

pytestmark = pytest.mark.slow
STEPS = 12
SAMPLES = [
    f"max_steps={STEPS}",
    "metrics_every=0",
    "+callbacks.generation.every=4",  # "~callbacks.generation" in TINY takes the node away
    "+callbacks.generation._target_=diffusion_lab.callbacks.Generation",
    "+callbacks.generation.directory=${paths.run_dir}",
    "+callbacks.generation.solver=${solver}",
    "+callbacks.generation.evaluation=${metrics}",
    "+callbacks.generation.metrics_every=0",
    "+callbacks.generation.grid=4",
    "solver.steps=2",
    "metrics.num_samples=128",
    "metrics.batch_size=16",
    "metrics.names=[is]",
    "callbacks.validation.every=4",
    "checkpoint_every=5",
]
TWO = ["trainer.devices=2", "trainer.strategy=ddp_fork"]


def state(folder: Path) -> dict[str, object]:
    grids = {path.name: path.read_bytes() for path in sorted((folder / "samples").glob("*.png"))}
    result = json.loads((folder / "result.json").read_text())
    kept = {f"result {key}": result[key] for key in ("status", "step", "metrics", "evaluations")}
    lines = (folder / "evaluations.jsonl").read_bytes()
    return final_state(folder) | {"evaluations.jsonl": lines, "grids": grids} | kept


def slowly(where: str, marker: Path):
    """Before the `where`-th network call of the evaluations: make a file, then take half a minute for each call."""

    def patch() -> None:
        from diffusion_lab.diffusion import Denoiser

        original, calls = Denoiser.estimate, iter(range(1, 10_000))

        def estimate(self, x_t, *args, **kwargs):
            if len(x_t) > 1 and next(calls) >= int(where):  # with one row the calls of an evaluation are counted before
                marker.touch()
                time.sleep(30)
            return original(self, x_t, *args, **kwargs)

        Denoiser.estimate = estimate

    return patch


def wait_for(marker: Path, child: Child) -> None:
    end = time.monotonic() + 60
    while not marker.exists():
        assert child.poll() is None and time.monotonic() < end, child.log.read_text()[-3000:]
        time.sleep(0.01)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The folder of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    train_child(configuration(folder, *SAMPLES)).succeed()
    return folder


@pytest.fixture(scope="module")
def wanted(straight):
    """Its state."""
    return state(straight)


@pytest.fixture(scope="module")
def wanted_of_two(tmp_path_factory):
    """As above, of two processes."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    train_child(configuration(folder, *SAMPLES, *TWO)).succeed()
    return state(folder)


# 2 calls for each batch of 16 samples; 8 batches for 128
CALLS = {"in the middle": 21, "at the end": 40}


@pytest.mark.parametrize(
    ("place", "way"),
    [
        pytest.param("in the middle", signal.SIGTERM, id="in the middle-SIGTERM"),
        pytest.param("at the end", signal.SIGKILL, id="at the end-SIGKILL"),
        pytest.param("in the middle", signal.SIGKILL, id="in the middle-SIGKILL", marks=pytest.mark.exhaustive),
        pytest.param("at the end", signal.SIGTERM, id="at the end-SIGTERM", marks=pytest.mark.exhaustive),
    ],
)
def test_what_was_owed_is_measured_first(place, way, wanted, tmp_path):
    folder = tmp_path / "run"
    cfg, marker = configuration(folder, *SAMPLES), tmp_path / "marker"
    child = train_child(cfg, slowly(str(CALLS[place]), marker))
    wait_for(marker, child)
    begin = time.monotonic()
    if way == signal.SIGKILL:
        child.kill()
    else:
        os.kill(child.pid, way)
        assert child.wait() != 0
        assert time.monotonic() - begin < 10, "the signal waited for the evaluation"
        assert "Interrupted" in child.log.read_text()
        assert json.loads((folder / "result.json").read_text())["status"] == "interrupted"
    step = 8 if place == "in the middle" else STEPS
    saved = load(folder / "checkpoints" / "last.ckpt")
    assert saved["global_step"] == step and saved["callbacks"]["RunRecord"]["owed"] == ["Validation", "Generation"]
    # The validation was done before the samples, and is not done again.
    assert json.loads((folder / "evaluated.json").read_text())["done"] == ["Validation"]
    train_child(cfg).succeed()
    assert differences(wanted, state(folder)) == []


def test_a_kill_behind_the_evaluation_measures_nothing_again(wanted, tmp_path):
    folder = tmp_path / "run"
    cfg = configuration(folder, *SAMPLES)

    def stop_behind() -> None:
        from diffusion_lab.callbacks import TimestepLog

        original = TimestepLog.on_step_end

        def on_step_end(self, trainer, module, step, records):
            if step == 9:
                os.kill(os.getpid(), signal.SIGKILL)
            original(self, trainer, module, step, records)

        TimestepLog.on_step_end = on_step_end

    assert train_child(cfg, stop_behind).wait() == -signal.SIGKILL
    assert load(folder / "checkpoints" / "last.ckpt")["global_step"] == 8
    before = {path: path.stat().st_mtime_ns for path in (folder / "samples").iterdir()}
    train_child(cfg).succeed()
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert differences(wanted, state(folder)) == []


def test_a_run_that_only_lacks_its_result_gets_it(straight, wanted, tmp_path):
    folder = shutil.copytree(straight, tmp_path / "run")
    (folder / "result.json").unlink()  # as a kill between the last evaluation and this file leaves it
    train_child(configuration(folder, *SAMPLES)).succeed()
    assert differences(wanted, state(folder)) == []


@pytest.mark.parametrize("signalled", [pytest.param("first", marks=pytest.mark.exhaustive), "second"])
def test_two_processes_stop_together(signalled, wanted_of_two, tmp_path):
    folder = tmp_path / "run"
    cfg, marker = configuration(folder, *SAMPLES, *TWO), tmp_path / "marker"
    # Each process makes half of the samples: 4 batches, 8 calls.
    child = train_child(cfg, slowly("11", marker))
    wait_for(marker, child)
    time.sleep(1)  # until both are there
    ranks = sorted(int(pid) for pid in Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split())
    begin = time.monotonic()
    os.kill(ranks[0 if signalled == "first" else 1], signal.SIGTERM)
    assert child.wait() != 0
    assert time.monotonic() - begin < 20, "a process waited for the evaluation"
    assert "Interrupted" in child.log.read_text()
    assert load(folder / "checkpoints" / "last.ckpt")["global_step"] == 8
    train_child(cfg).succeed()
    assert differences(wanted_of_two, state(folder)) == []


def test_negative_control_a_run_that_forgets_what_it_owes_differs(wanted, tmp_path):
    folder = tmp_path / "run"
    cfg, marker = configuration(folder, *SAMPLES), tmp_path / "marker"
    child = train_child(cfg, slowly("21", marker))
    wait_for(marker, child)
    child.kill()

    def forget() -> None:
        from diffusion_lab.callbacks import EvaluationCallback

        EvaluationCallback.owed = property(lambda self: False, lambda self, value: None)

    train_child(cfg, forget).succeed()
    wrong = differences(wanted, state(folder))
    assert {"evaluations.jsonl", "metrics", "grids"} <= set(wrong)
