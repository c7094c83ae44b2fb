"""A signal that reaches all processes of a run, as from a terminal or a cluster, leaves its workers alone."""

import os
import signal

import pytest

from tests.harness import configuration, final_state, train_child, wait_for_step

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_that_reaches_the_workers_too_costs_nothing(number, tmp_path):
    folder = tmp_path / "run"
    cfg = configuration(folder, "max_steps=40", "checkpoint_every=1000", "dataset.num_workers=2")
    child = train_child(cfg)
    wait_for_step(child, folder, 10)
    os.killpg(child.pid, number)
    assert child.wait() != 0
    log = child.log.read_text()
    assert "Interrupted" in log and "DataLoader worker" not in log
    assert 10 <= final_state(folder)["step"] < 40
