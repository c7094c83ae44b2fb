"""SIGTERM and SIGINT: a checkpoint at the next step boundary, a stated exit code, and an exact continuation."""

import os
import signal

import pytest

from tests.harness import configuration, differences, final_state, train_child, wait_for_step

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_run_continues_exactly(number, tmp_path):
    overrides = ["max_steps=40", "checkpoint_every=1000"]
    train_child(configuration(tmp_path / "a" / "run", *overrides)).succeed()
    folder = tmp_path / "b" / "run"
    cfg = configuration(folder, *overrides)
    child = train_child(cfg)
    wait_for_step(child, folder, 10)
    os.kill(child.pid, number)
    assert child.wait() != 0
    assert "Interrupted" in child.log.read_text()
    stopped = final_state(folder)
    assert 10 <= stopped["step"] < 40
    train_child(cfg).succeed()
    assert differences(final_state(tmp_path / "a" / "run"), final_state(folder)) == []
