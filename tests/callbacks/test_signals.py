"""Signals: a checkpoint at the next step boundary, a stated exit code, and an exact continuation."""

import json
import os
import signal
import sys

import pytest
import torch

from diffusion_lab.callbacks import Progress
from diffusion_lab.callbacks.signals import SIGNALS, Signals
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import quiet_libraries
from diffusion_lab.cli.main import main
from diffusion_lab.training.checkpoint_io import load
from diffusion_lab.training.finite import NotFinite
from tests.harness import Child, configuration, differences, final_state, train_child, wait_for_step

pytestmark = pytest.mark.slow


OVERRIDES = ["max_steps=24", "checkpoint_every=1000"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "run"
    train_child(configuration(folder, *OVERRIDES)).succeed()
    return final_state(folder)


SECOND = pytest.param(signal.SIGHUP, marks=pytest.mark.exhaustive)  # handled by the same lines as SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, SECOND])
def test_interrupted_run_continues_exactly(number, uninterrupted, tmp_path):
    folder = tmp_path / "run"
    cfg = configuration(folder, *OVERRIDES)
    child = train_child(cfg)
    wait_for_step(child, folder, 10)
    os.kill(child.pid, number)
    assert child.wait() != 0
    assert "Interrupted" in child.log.read_text()
    stopped = final_state(folder)
    assert 10 <= stopped["step"] < 24
    train_child(cfg).succeed()
    assert differences(uninterrupted, final_state(folder)) == []


SHORT = [
    *("train", "trainer=cpu", "network.base_channels=8", "network.channel_multipliers=[1]", "batch_size=8"),
    *("log_every=1", "snapshot_every=0", "checkpoint_every=0", "threads=1", "metrics=none", "solver.steps=2"),
]


def command(folder, *more):
    """`diffusion-lab train` as a child."""
    return Child(lambda: sys.exit(main([*SHORT, *more])), folder / "log")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_exit_code_names_the_signal(number, tmp_path):
    folder = tmp_path / "run"
    child = command(tmp_path, f"hydra.run.dir={folder}", "max_steps=100000")
    wait_for_step(child, folder, 5)
    os.kill(child.pid, number)
    assert child.wait() == 128 + number
    assert f"stopped by signal {int(number)}; the same command goes on" in child.log.read_text()
    assert load(folder / "checkpoints" / "last.ckpt")["global_step"] >= 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, SECOND])
@pytest.mark.parametrize("hook", ["setup", "on_train_start"])
def test_a_signal_before_the_first_step_is_not_lost(hook, number, tmp_path, monkeypatch):
    """Between Lightning's handlers and ours SIGTERM was lost, and SIGINT ended with exit code 1."""
    if hook == "setup" and number != signal.SIGINT:
        pytest.skip("what stops a process that has no handler yet is the system")
    folder, original = tmp_path / "run", getattr(Progress, hook)

    def signalled(self, *given, **named):
        os.kill(os.getpid(), number)
        original(self, *given, **named)

    monkeypatch.setattr(Progress, hook, signalled)  # the callback before `Checkpoint`
    assert command(tmp_path, f"hydra.run.dir={folder}", "max_steps=20").wait() == 128 + number
    assert f"stopped by signal {int(number)}; the same command" in (tmp_path / "log").read_text()
    if hook == "on_train_start":
        assert load(folder / "checkpoints" / "last.ckpt")["global_step"] == 1
    monkeypatch.undo()
    assert json.loads((folder / "result.json").read_text())["status"] == "interrupted"
    command(tmp_path, f"hydra.run.dir={folder}", "max_steps=20").succeed()


def test_the_handlers_of_before_are_back_after_a_run_that_fails(tmp_path):
    """Lightning puts back what it found, which was ours where it had found that."""

    def work():
        quiet_libraries()
        before = [signal.getsignal(number) for number in SIGNALS]
        run = build_run(configuration(tmp_path / "run", "max_steps=9"), {"config": {}, "config_hash": ""})
        run.module.denoiser.network.conv_in.weight.data.fill_(float("nan"))
        with pytest.raises(NotFinite):
            run.trainer.fit(run.module, datamodule=run.data)
        assert [signal.getsignal(number) for number in SIGNALS] == before

    Child(work, tmp_path / "log").succeed()


def test_under_nohup_a_closed_terminal_is_nothing(tmp_path):
    folder = tmp_path / "run"
    child = Child(
        lambda: (
            signal.signal(signal.SIGHUP, signal.SIG_IGN),
            sys.exit(main([*SHORT, f"hydra.run.dir={folder}", "max_steps=60"])),
        ),
        tmp_path / "log",
    )
    wait_for_step(child, folder, 5)
    os.kill(child.pid, signal.SIGHUP)
    child.succeed()
    assert json.loads((folder / "result.json").read_text())["status"] == "done"


def test_a_sweep_hands_it_on_and_goes_on_later(tmp_path):
    words = ["-m", "seed=0,1", f"paths.root={tmp_path}", "name=s", "max_steps=300"]
    child = command(tmp_path, *words)
    first = next(folder for folder in _jobs(child, tmp_path / "s"))
    wait_for_step(child, first, 5)
    os.kill(child.pid, signal.SIGHUP)
    assert child.wait() == 128 + signal.SIGHUP
    assert 5 <= load(first / "checkpoints" / "last.ckpt")["global_step"] < 300
    assert json.loads((first / "result.json").read_text())["status"] == "interrupted"


def _jobs(child, sweep):
    """The folders of the jobs that have started, as they start."""
    import time

    end = time.monotonic() + 60
    while time.monotonic() < end and child.poll() is None:
        yield from (path.parent for path in sweep.glob("*/run.json"))
        time.sleep(0.01)


def test_a_signal_stops_one_fit_and_not_the_next():
    """In a notebook the second fit with the same callback stopped after its first step."""
    signals = Signals()
    for number in (signal.SIGUSR1, 0):
        signals.listen()
        if number:
            os.kill(os.getpid(), number)
        assert signals.agreed(torch.device("cpu")) == number
        signals.restore()
