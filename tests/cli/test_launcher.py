"""The launcher, with jobs that fail in every way, in forked processes that the tests may kill."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose
from omegaconf import OmegaConf, open_dict

from diffusion_lab.cli.checks.machine import optimizer_states
from diffusion_lab.cli.config import compose_train, conf_dir, register_resolvers
from diffusion_lab.cli.errors import ConfigError, MissingHere
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.runs.names import LOG
from diffusion_lab.runs.shell_commands import setting
from diffusion_lab.workers import JOBS
from hydra_plugins.diffusion_lab_launcher import _child, launcher
from hydra_plugins.diffusion_lab_launcher._child import command, needs_command, starts_processes
from hydra_plugins.diffusion_lab_launcher._jobs import Job
from hydra_plugins.diffusion_lab_launcher._pool import Pool, pause
from hydra_plugins.diffusion_lab_launcher._queue import QueueLauncher
from hydra_plugins.diffusion_lab_launcher.launcher import DiffusionLabLauncher
from tests.cli import sweep_app
from tests.harness import Child


@pytest.fixture
def sweep(tmp_path: Path) -> Callable[..., Child]:
    """sweep(*arguments): the stand-in command in a child process, in tmp_path; its output is in tmp_path/log."""

    def start(*arguments: str) -> Child:
        def work() -> None:
            os.chdir(tmp_path)
            sys.exit(sweep_app.run("-m", *arguments))

        return Child(work, tmp_path / "log")

    return start


def jobs(folder: Path) -> dict[str, Path]:
    """Run folders by their names without the hash."""
    return {path.name.rpartition("-")[0]: path for path in sorted((folder / "runs" / "sweep").glob("*-*"))}


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def calls(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


def wait_for(path: Path, limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)


def test_goes_on_after_failures_names_them_and_runs_only_what_is_missing(sweep, tmp_path: Path) -> None:
    arguments = ("how=raise,kill,done",)
    assert sweep(*arguments).wait() == 1
    found = jobs(tmp_path)
    states = {name: result(path)["status"] for name, path in found.items()}
    assert states == {"done-s0": "done", "raise-s0": "failed", "kill-s0": "failed"}
    assert result(found["raise-s0"])["error"]["type"] == "RuntimeError"
    assert "the loss is not finite" in result(found["raise-s0"])["error"]["traceback"]
    assert result(found["kill-s0"])["error"]["type"] == "killed"
    assert "SIGKILL" in result(found["kill-s0"])["error"]["message"]
    assert "Traceback" in (found["raise-s0"] / "train.log").read_text()
    log = (tmp_path / "log").read_text()
    assert "2 of 3 jobs are not done" in log and "next: diffusion-lab report runs/sweep" in log
    for name, cause in {"raise-s0": "RuntimeError: the loss is not finite", "kill-s0": "killed by signal 9"}.items():
        named = log[log.index("jobs are not done") :].partition(f"how={name.split('-')[0]}\n")
        assert cause in named[0] and found[name].name in named[2]
    assert "Traceback" not in log

    (tmp_path / "runs" / "sweep" / "repaired").touch()
    assert sweep(*arguments).wait() == 0
    assert {name: len(calls(path)) for name, path in found.items()} == {"done-s0": 1, "raise-s0": 2, "kill-s0": 2}
    assert {result(path)["status"] for path in found.values()} == {"done"}


def test_gpus_are_counted_among_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of a scheduler that was given GPUs 2 and 5 must not take those of others."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-5af")
    assert DiffusionLabLauncher(n_jobs=2, gpus=[1, 0]).gpus == ["GPU-5af", "2"]
    for wrong in ([0, 2], [0, 0], [-1, 0], ["0", "1"]):
        with pytest.raises(ConfigError, match=r"gpus=.* must be different integers >= 0 below 2"):
            DiffusionLabLauncher(n_jobs=2, gpus=wrong)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert DiffusionLabLauncher(gpus=[7]).gpus == ["7"]


def test_gpus_that_are_not_here_are_refused_with_the_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA would hide all others, and the run would train on the CPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for numbers, accelerator, refused in (([2], "gpu", True), ([1], "gpu", False), ([2], "cpu", False)):
        made = DiffusionLabLauncher(gpus=numbers)
        made.task = SimpleNamespace(check=lambda cfg: [])
        found = made.faults(_job(tmp_path, f"trainer.accelerator={accelerator}"))
        assert [type(one) for one in found] == [MissingHere] * refused
        assert made.faults(_job(tmp_path, f"trainer.accelerator={accelerator}", "dry_run=true")) == []


@pytest.mark.parametrize(
    "given", [{"gpus": 2}, {"gpus": "01"}, {"timeout_s": "10m"}, {"timeout_s": True}, {"timeout_s": math.nan}]
)
def test_arguments_of_another_kind_are_one_sentence(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"hydra.launcher.{next(iter(given))}=.* must be"):
        DiffusionLabLauncher(**given)
    with pytest.raises(ConfigError, match="hydra.launcher.poll_s=-1 must be > 0 seconds"):
        QueueLauncher(-1)


def test_every_launch_of_a_process_knows_the_machines_threads(tmp_path: Path) -> None:
    """The second block of a race has as many as the first one."""

    def work() -> None:
        torch.set_num_threads(2)
        launcher._threads.cache_clear()
        assert [launcher._start_single_threaded() for _ in range(2)] == [2, 2] and torch.get_num_threads() == 1

    Child(work, tmp_path / "log").succeed()


@pytest.mark.parametrize(
    ("overrides", "threads"),
    [(["trainer.devices=1"], "4"), (["trainer=ddp_cpu", "trainer.devices=2"], "2"), (["trainer.devices=8"], "1")],
)
def test_the_processes_of_a_job_share_its_threads(
    overrides: list[str], threads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight threads each of two jobs has four."""
    given: list[dict[str, str]] = []
    monkeypatch.setitem(Pool._launch.__globals__, "start_command", lambda job, arguments, own: given.append(own))
    Pool(SimpleNamespace(), None, 2, 8, None, None, False)._launch(_job(tmp_path, *overrides), 0)
    assert given[0]["OMP_NUM_THREADS"] == threads


def test_a_finished_job_is_trained_again_if_asked(tmp_path: Path) -> None:
    for overrides, done in (([], True), (["anew=true"], False)):
        job = _job(tmp_path, *overrides)
        job.folder.mkdir(exist_ok=True)
        (job.folder / "result.json").write_text(json.dumps({"status": "done", "step": job.config.max_steps}))
        assert job.is_done() and job.needs_nothing() is done


def test_a_job_is_a_run_of_its_own(sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    os.environ["LOCAL_RANK"] = "0"
    try:
        child = sweep("seed=0,1", "hydra.launcher.n_jobs=2", "hydra.launcher.gpus=[3,5,7]")
    finally:
        del os.environ["LOCAL_RANK"]
    assert child.wait() == 0
    seen = [calls(path)[0] for path in jobs(tmp_path).values()]
    assert [call["mode"] for call in seen] == ["RUN", "RUN"]
    assert all(call["checked"] and call["leader"] for call in seen)
    assert {call["env"]["LOCAL_RANK"] for call in seen} == {None}
    assert {call["env"]["CUDA_VISIBLE_DEVICES"] for call in seen} == {"3,7", "5"}
    assert {call["env"]["OMP_NUM_THREADS"] for call in seen} == {"1"}
    assert {call["env"][JOBS] for call in seen} == {"2"}  # who share the cores
    for path, call in zip(jobs(tmp_path).values(), seen, strict=True):
        assert call["dir"] == str(path.relative_to(tmp_path))  # what Lightning hands to processes of its own
        assert call["typed"][0] == "train" and setting("hydra.run.dir", call["dir"]) in call["typed"]
        assert "-m" not in call["typed"]


@pytest.mark.slow
def test_sweep_json_names_all_jobs_that_were_ever_asked_for(sweep, tmp_path: Path) -> None:
    assert sweep("seed=0,1").wait() == 0
    assert sweep("seed=1,2").wait() == 0
    content = json.loads((tmp_path / "runs" / "sweep" / "sweep.json").read_text())
    assert content["commands"] == ["diffusion-lab train -m seed=0,1", "diffusion-lab train -m seed=1,2"]
    assert sorted(job["overrides"][0] for job in content["jobs"]) == ["seed=0", "seed=1", "seed=2"]
    for job in content["jobs"]:
        assert (tmp_path / "runs" / "sweep" / job["dir"]).is_dir()
        assert job["dir"].endswith(job["config_hash"][:8])


def test_one_bad_configuration_starts_nothing(sweep, tmp_path: Path) -> None:
    assert sweep("seed=0,-1,-2,1").wait() == 2
    log = (tmp_path / "log").read_text().strip().splitlines()
    assert log[-2:] == [
        "job 1 (seed=-1): seed=-1 must be >= 0; use 0",
        "job 2 (seed=-2): seed=-2 must be >= 0; use 0",
    ]
    assert not (tmp_path / "runs").exists()


BAD = ("raise", "kill", "sys_exit_0", "sys_exit_3", "vanish", "diverge", "config", "late")


@pytest.mark.parametrize(
    "seeds", [pytest.param("0", id="8 of 9"), pytest.param("0,1", id="16 of 22", marks=pytest.mark.slow)]
)
def test_every_way_to_fail_is_named_and_the_same_command_runs_those_alone(sweep, tmp_path: Path, seeds: str) -> None:
    count = len(seeds.split(","))
    good = "done" if count == 1 else "done,short,exact"
    arguments = (f"how={good},{','.join(BAD)}", f"seed={seeds}", "hydra.launcher.n_jobs=2")
    assert sweep(*arguments).wait() == 1
    found = jobs(tmp_path)
    failed = {name for name, path in found.items() if result(path)["status"] == "failed"}
    assert failed == {name for name in found if name.rpartition("-")[0] in BAD} and len(failed) == count * len(BAD)
    causes = {
        "raise": "RuntimeError: the loss is not finite",
        "kill": "SIGKILL",
        "sys_exit_0": "SystemExit: a part of the run called sys.exit(0)",
        "sys_exit_3": "SystemExit: a part of the run called sys.exit(3)",
        "vanish": "exit code 0 before max_steps=1",
        "diverge": "the loss is not finite at step 3",
        "config": "must be a folder; it was removed",
        "late": "SIGTERM",
    }
    log = (tmp_path / "log").read_text()
    assert f"{len(failed)} of {len(found)} jobs are not done" in log and "Traceback" not in log
    lines = log[log.index("jobs are not done") :].splitlines()
    for name in failed:
        how, _, seed = name.rpartition("-s")
        words = [f"how={how}", f"seed={seed}"] if count > 1 else [f"how={how}"]  # a seed that all share is not told
        at = next(i for i, line in enumerate(lines) if line.split() == words)
        cause = next(line for line in reversed(lines[:at]) if not line.startswith("    "))
        assert causes[how] in cause and lines[at + 1].endswith(f"{found[name].name}/train.log")

    (tmp_path / "runs" / "sweep" / "repaired").touch()
    assert sweep(*arguments).wait() == 0
    assert {name: len(calls(path)) for name, path in found.items()} == {n: 1 + (n in failed) for n in found}
    assert {result(path)["status"] for path in found.values()} == {"done"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", b"[1]"),
        pytest.param("result.json", b'{"status": "do', marks=pytest.mark.slow),
        pytest.param("sweep.json", b'{"jobs": 5}', marks=pytest.mark.slow),
    ],
)
def test_damaged_files_of_an_earlier_sweep_stop_nothing(sweep, tmp_path: Path, name: str, content: bytes) -> None:
    assert sweep("seed=0,1").wait() == 0
    folder = tmp_path / "runs" / "sweep"
    damaged = folder / name if name == "sweep.json" else jobs(tmp_path)["done-s0"] / name
    damaged.write_bytes(content)
    assert sweep("seed=0,1").wait() == 0, (tmp_path / "log").read_text()
    assert result(jobs(tmp_path)["done-s0"])["status"] == "done"
    assert len(json.loads((folder / "sweep.json").read_text())["jobs"]) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_is_handed_on_and_the_sweep_ends_with_its_code(sweep, tmp_path: Path, number: int) -> None:
    child = sweep("how=sleep", "seed=0,1,2", "hydra.launcher.n_jobs=2")
    folder = tmp_path / "runs" / "sweep"
    for seed in (0, 1):
        while not list(folder.glob(f"sleep-s{seed}-*/sleeping")):
            assert child.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.01)
    os.kill(child.pid, number)
    assert child.wait() == 128 + number
    found = jobs(tmp_path)
    assert [(path / "checkpoint").exists() for path in found.values()] == [True, True]
    assert "sleep-s2" not in found
    log = (tmp_path / "log").read_text()
    assert log.count("stopped by signal") == 3 and "  interrupted: stopped by signal" in log and "not started" in log


@pytest.mark.slow
def test_a_second_signal_kills_and_says_so(sweep, tmp_path: Path) -> None:
    child = sweep("how=sleep", "seed=0")
    folder = tmp_path / "runs" / "sweep"
    while not list(folder.glob("sleep-s0-*/sleeping")):
        assert child.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    (job,) = jobs(tmp_path).values()
    (pid,) = [int(at.name) for at in Path("/proc").glob("[0-9]*") if _parent(at) == child.pid]
    os.kill(pid, signal.SIGSTOP)  # it writes no checkpoint
    for said in ("once more to kill", "killed by the second signal 15"):
        os.kill(child.pid, signal.SIGTERM)
        while said not in (tmp_path / "log").read_text():
            assert child.poll() is None or said in (tmp_path / "log").read_text()
            time.sleep(0.01)
    assert child.wait() == 128 + signal.SIGTERM
    assert "memory" not in (tmp_path / "log").read_text() and not (job / "result.json").exists()


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.slow
def test_jobs_end_when_the_launcher_is_killed(sweep, tmp_path: Path) -> None:
    child = sweep("how=sleep", "seed=0")
    folder = tmp_path / "runs" / "sweep"
    while not list(folder.glob("sleep-s0-*/sleeping")):
        assert child.poll() is None, (tmp_path / "log").read_text()
        time.sleep(0.01)
    child.kill()
    wait_for(jobs(tmp_path)["sleep-s0"] / "checkpoint")


@pytest.mark.slow
def test_a_late_job_is_stopped_and_the_next_one_runs(sweep, tmp_path: Path) -> None:
    assert sweep("how=sleep,done", "hydra.launcher.timeout_s=1").wait() == 1
    found = jobs(tmp_path)
    assert (found["sleep-s0"] / "checkpoint").exists()
    assert result(found["sleep-s0"])["error"]["type"] == "Timeout"
    assert "timeout_s=1 s" in result(found["sleep-s0"])["error"]["message"]
    assert result(found["done-s0"])["status"] == "done"


@pytest.mark.slow
def test_exit_codes_count_and_fail_fast_starts_no_more(sweep, tmp_path: Path) -> None:
    assert sweep("how=exit,done", "hydra.launcher.fail_fast=true").wait() == 1
    assert set(jobs(tmp_path)) == {"exit-s0"}
    assert "not started" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_two_sweeps_in_one_folder_share_the_jobs(sweep, tmp_path: Path) -> None:
    both = [sweep("how=short", "seed=0,1,2,3") for _ in range(2)]
    assert [child.wait() for child in both] == [0, 0]
    found = jobs(tmp_path)
    assert len(found) == 4 and {result(path)["status"] for path in found.values()} == {"done"}


@pytest.mark.slow
def test_the_same_job_twice_runs_once(sweep, tmp_path: Path) -> None:
    assert sweep("seed=0,0", "hydra.launcher.n_jobs=2").wait() == 0
    assert len(calls(jobs(tmp_path)["done-s0"])) == 1


def _job(tmp_path: Path, *overrides: str) -> Job:
    register_resolvers()
    with initialized():
        cfg = compose("train", overrides=list(overrides), return_hydra_config=True)
    with open_dict(cfg):
        cfg.hydra.overrides.hydra = ["hydra.mode=MULTIRUN", "hydra.launcher.n_jobs=2", "hydra.verbose=true"]
    return Job(0, list(overrides), cfg, tmp_path / "it's a run")


@pytest.mark.parametrize(
    ("overrides", "starts"),
    [
        ([], False),
        (["trainer=ddp_cpu"], True),
        (["trainer=ddp_cpu", "trainer.devices=1"], False),
        (["trainer=ddp_cpu", "trainer.strategy=ddp_fork"], False),
        (["trainer.accelerator=gpu", "trainer.devices=[0,1]"], True),
        (["trainer.accelerator=gpu", "trainer.devices='0,1'"], True),
        (["trainer.accelerator=gpu", "trainer.devices='0,'"], False),
        (["trainer.accelerator=cpu", "trainer.devices=auto"], False),
    ],
)
def test_jobs_that_start_processes_get_a_command(tmp_path: Path, overrides: list[str], starts: bool) -> None:
    assert starts_processes(_job(tmp_path, *overrides)) is starts


def test_a_job_on_a_gpu_gets_a_command_where_the_launcher_has_used_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the process would fail with "CUDA error: initialization error", as seen on an H100."""
    memory = tmp_path / "nvidia-uvm"
    memory.touch()
    monkeypatch.setattr(_child, "GPU_MEMORY", str(memory))
    on_gpu, on_cpu = (_job(tmp_path, f"trainer.accelerator={kind}") for kind in ("gpu", "cpu"))
    assert not needs_command(on_gpu) and not needs_command(on_cpu)
    with memory.open():
        assert needs_command(on_gpu) and not needs_command(on_cpu)


@pytest.mark.parametrize("name", sorted(path.stem for path in (conf_dir() / "optimizer").glob("*.yaml")))
def test_what_a_sweep_checks_of_an_optimizer_asks_no_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step asks whether a GPU's stream is being captured, where there is one, and so initialises the driver."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    cfg = compose_train([f"optimizer={name}"], Path("nowhere"))
    assert optimizer_states(cfg) >= 0


def test_the_command_of_one_job(tmp_path: Path) -> None:
    words = command(_job(tmp_path, "seed=3"), ["-m", "--config-dir", "my_conf", "seed=3,4"])
    assert words[:4] == [sys.executable, "-m", "diffusion_lab.cli.main", "train"]
    assert words[4:7] == ["--config-dir=my_conf", "seed=3", "hydra.verbose=true"]
    assert "hydra.mode=RUN" in words and "hydra.launcher.n_jobs=2" not in words
    register_resolvers()
    with initialized():  # quotes in a folder's name survive
        cfg = compose("train", overrides=words[5:], return_hydra_config=True)
    assert cfg.hydra.run.dir == str(tmp_path / "it's a run")
    assert OmegaConf.to_container(cfg.hydra.job_logging.root.handlers) == ["console"]


def test_polls_are_a_hundredth_of_a_jobs_time_apart_within_bounds():
    assert [pause(seconds) for seconds in (0, 1, 5, 3600)] == pytest.approx([0.02, 0.02, 0.05, 0.2])


def test_a_moved_sweep_starts_no_further_job_and_is_not_made_again(sweep, tmp_path: Path) -> None:
    child = sweep("how=move", "seed=0,1")
    assert child.wait() == 1
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["moved"]
    assert len(list((tmp_path / "runs" / "moved").glob("move-*"))) == 1
    assert "runs/sweep was moved to runs/moved while it was in use" in (tmp_path / "log").read_text()


def test_the_folder_of_a_job_is_not_made_again_and_the_others_go_on(sweep, tmp_path: Path) -> None:
    child = sweep("how=rename,done")
    assert child.wait() == 1
    assert list(jobs(tmp_path)) == ["done-s0"] and result(jobs(tmp_path)["done-s0"])["status"] == "done"
    assert (tmp_path / "runs" / "renamed" / "calls.jsonl").exists()


def test_a_command_receives_the_signals_that_its_launcher_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of Ray blocks signals, and a command would inherit that: a stopped job would train on."""
    waits = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    monkeypatch.setattr(_child, "command", lambda job, arguments: waits)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        child = _child.start_command(SimpleNamespace(folder=tmp_path), [], dict(os.environ))
        end = time.monotonic() + 20
        while "up" not in (tmp_path / LOG).read_text() and time.monotonic() < end:
            time.sleep(0.02)
        child.ask(signal.SIGTERM)
        while (code := child.poll()) is None and time.monotonic() < end:
            time.sleep(0.02)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        child.kill(signal.SIGKILL)
    assert code == -signal.SIGTERM
