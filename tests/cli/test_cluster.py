"""Sweeps whose jobs submitit starts, with its executor for one machine: a job that is preempted is queued again, one
that is stopped goes on with the same command, and both end as if nothing had been."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.main import main
from hydra_plugins.diffusion_lab_launcher._jobs import Job, Outcome
from hydra_plugins.diffusion_lab_launcher._queue import QueueLauncher
from hydra_plugins.diffusion_lab_launcher._remote import outcome_of
from hydra_plugins.diffusion_lab_launcher.cluster import ClusterLauncher
from tests.harness import Child, differences, final_state, wait_for_step

JOB = [
    *("base=ddpm", "trainer=cpu", "scale=smoke", "network.base_channels=8", "network.channel_multipliers=[1]"),
    *("batch_size=8", "threads=1", "~callbacks.generation"),
    *("max_steps=100", "checkpoint_every=50", "snapshot_every=0", "log_every=10"),
]
OURS = [
    *("hydra/launcher=diffusion_lab_slurm", "hydra.launcher.cluster=local", "hydra.launcher.poll_s=0.2"),
    *("hydra.launcher.parameters.timeout_min=60", "hydra.launcher.parameters.gpus_per_node=0"),
]
PLUGIN = ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=60", "hydra.launcher.gpus_per_node=0"]


def command(folder: Path, log: str, *arguments: str) -> Child:
    def work() -> None:
        os.chdir(folder)
        raise SystemExit(main(["train", *arguments]))

    return Child(work, folder / log)


def running(folder: Path, seed: int, child: Child) -> tuple[Path, int]:
    """The folder of a job that has trained some steps, and the process that trains."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for run in folder.glob(f"runs/two/digits-uniform-s{seed}-*"):
            wait_for_step(child, run, 20, 120)
            return run, next(pid for pid in trainers() if f"{run.name}/" in opened(pid))
        time.sleep(0.05)
    raise TimeoutError((folder / "log").read_text())


def trainers() -> list[int]:
    """Processes in which submitit runs a job."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"submitit.core._submit" in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def opened(pid: int) -> str:
    """Names of the files that a process holds open, the run folder's lock among them."""
    names = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            names.append(os.readlink(link))
        except OSError:
            continue
    return "\n".join(names)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, object]]:
    """The final states of seeds 0 and 1, trained alone."""
    folder = tmp_path_factory.mktemp("alone")
    for seed in (0, 1):
        command(folder, f"log{seed}", *JOB, f"seed={seed}", f"hydra.run.dir={folder}/{seed}").succeed()
    return {seed: final_state(folder / str(seed)) for seed in (0, 1)}


@pytest.mark.slow
def test_a_preempted_and_a_stopped_job_end_as_uninterrupted_ones(
    tmp_path: Path, uninterrupted: dict[int, dict[str, object]]
) -> None:
    sweep = ["-m", "seed=0,1", "name=two", *JOB, *OURS]
    child = command(tmp_path, "log", *sweep)
    preempted, first = running(tmp_path, 0, child)
    os.kill(first, signal.SIGUSR2)  # as a cluster does before it ends a job
    stopped, second = running(tmp_path, 1, child)
    os.kill(second, signal.SIGTERM)
    assert child.wait(300) == 1
    said = (tmp_path / "log").read_text()
    assert "1 of 2 jobs are not done" in said and re.search(r"interrupted\s+seed=1 ", said)
    assert "Requeued job" in (preempted / "train.log").read_text()
    assert re.search(r"continuing \S+ from step \d+ \(last.ckpt\)", (preempted / "train.log").read_text())
    assert json.loads((stopped / "result.json").read_text())["status"] == "interrupted"

    again = command(tmp_path, "again", *sweep)
    again.succeed(300)
    assert "done before" in (tmp_path / "again").read_text()
    for seed, run in ((0, preempted), (1, stopped)):
        assert differences(final_state(run), uninterrupted[seed]) == []
        assert json.loads((run / "result.json").read_text())["status"] == "done"
    assert len(json.loads((tmp_path / "runs" / "two" / "sweep.json").read_text())["jobs"]) == 2


@pytest.mark.slow
@pytest.mark.exhaustive  # a second case: the plugin queues a job again with the code of the test above
def test_the_plugin_of_hydra_queues_a_preempted_job_again(
    tmp_path: Path, uninterrupted: dict[int, dict[str, object]]
) -> None:
    child = command(tmp_path, "log", "-m", "seed=0", "name=two", *JOB, *PLUGIN)
    run, process = running(tmp_path, 0, child)
    os.kill(process, signal.SIGUSR2)
    child.succeed(300)
    assert json.loads((run / "run.json").read_text())["seed"] == 0
    assert differences(final_state(run), uninterrupted[0]) == []


def test_every_job_is_checked_before_the_first_is_submitted(in_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # A GPU is no fault: the machine that submits need not have what the cluster has.
    assert main(["train", "-m", *OURS, "trainer=gpu", "batch_size=64,-3"]) == 2
    said = capfd.readouterr().err
    assert "job 1 (trainer=gpu batch_size=-3): batch_size=-3 must" in said and "GPU" not in said
    assert not (in_folder / "runs").exists()


@pytest.mark.parametrize(
    ("cluster", "message"), [("pbs", "cluster=pbs must be slurm or local"), ("slurm", "must have srun")]
)
def test_faults_of_the_cluster(cluster: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=message):
        ClusterLauncher(cluster, 1, {})


def test_the_batch_script(in_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sbatch is given: two tasks and GPUs for two devices, a signal before the end, the queue again."""
    import submitit
    from hydra import compose
    from hydra.core.hydra_config import HydraConfig
    from submitit.slurm.slurm import SlurmExecutor

    from diffusion_lab.cli.config import register_resolvers

    register_resolvers()
    with initialized():
        chosen = ["hydra/launcher=diffusion_lab_slurm", "trainer=ddp", "hydra.launcher.parameters.slurm_partition=p"]
        cfg = compose("train", overrides=chosen, return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    parameters = OmegaConf.to_container(cfg.hydra.launcher.parameters, resolve=True)
    HydraConfig.instance().cfg = None
    monkeypatch.setattr(SlurmExecutor, "affinity", classmethod(lambda cls: 2))
    executor = submitit.AutoExecutor(folder=in_folder, cluster="slurm", slurm_max_num_timeout=3)
    launcher = ClusterLauncher("local", 3, parameters)
    executor.update_parameters(**launcher.asked([Job(0, [], cfg, in_folder)]))
    cfg.trainer.accelerator = "auto"  # what this machine has is not what the job's will have
    assert launcher.asked([Job(0, [], cfg, in_folder)])["gpus_per_node"] == 2
    cfg.trainer.accelerator = "cpu"
    assert launcher.asked([Job(0, [], cfg, in_folder)])["gpus_per_node"] == 0
    script = executor._executor._make_submission_file_text("train", "id")
    for line in (
        *("ntasks-per-node=2", "gpus-per-node=2", "signal=USR2@120", "requeue", "open-mode=append", "partition=p"),
        *("nodes=1", "time=1440", "job-name=sweep-digits"),
    ):
        assert f"#SBATCH --{line}\n" in script
    assert "--kill-on-bad-exit=1" in script


def test_a_job_that_stands_twice_is_submitted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Queue(QueueLauncher):
        def submit(self, jobs: list[Job], folder: Path) -> list[SimpleNamespace]:
            submitted.extend(job.index for job in jobs)
            return [SimpleNamespace(done=lambda: True) for _ in jobs]

        def outcome(self, job: Job, handle: object) -> Outcome:
            return Outcome(job, "done", seconds=2.0)

    submitted = list[int]()
    jobs = [
        Job(i, [f"seed={n}"], OmegaConf.create({"max_steps": 1}), tmp_path / f"s{n}") for i, n in enumerate((0, 0, 1))
    ]
    ended = Queue(0.01).run_jobs(jobs, tmp_path, 1)
    assert sorted(submitted) == [0, 2] and [(one.job.index, one.status) for one in ended] == [
        (0, "done"),
        (1, "done"),
        (2, "done"),
    ]
    assert "locked" not in capsys.readouterr().out


def test_the_error_of_a_job_is_that_of_its_last_start(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    job = Job(0, [], OmegaConf.create({}), folder)
    for message in ("no data", "no GPU"):
        error = {"type": "MissingHere", "message": message, "traceback": ""}
        said = outcome_of(job, SimpleNamespace(results=lambda error=error: [(2, {"error": error})]))
        assert said.reason == f"MissingHere: {message}"
        assert json.loads((folder / "result.json").read_text())["error"]["message"] == message
