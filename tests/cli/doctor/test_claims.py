"""Each claim of the project that the doctor checks can fail: a fault of the kind that it is about is noticed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from diffusion_lab.cli.doctor import small_training
from diffusion_lab.cli.doctor.check import DIFFERS, IMPOSSIBLE, OK, CheckPlace, checks_of, place_of
from diffusion_lab.cli.doctor.checks import generation, machine, resume, training
from diffusion_lab.cli.doctor.small_training import Training
from diffusion_lab.metrics import ClassifierFeatures
from diffusion_lab.training.checkpoint_io import load, save
from tests.reports.synthetic import write_run

REFERENCE = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]


@pytest.fixture
def here(tmp_path: Path) -> CheckPlace:
    return place_of("cpu", tmp_path)


def test_losses_within_the_tolerance_are_ok_and_none_beyond_it_is() -> None:
    def status(*losses: float, skipped: int | None = None) -> str:
        return training.verdict(Training(list(losses), 0.0, skipped), REFERENCE, 1e-3).status

    assert status(*REFERENCE) == OK
    assert status(*(loss * 1.0009 for loss in REFERENCE)) == OK
    for place in range(len(REFERENCE)):
        wrong = [loss * (1 + 1.1e-3 * (i == place)) for i, loss in enumerate(REFERENCE)]
        assert status(*wrong) == DIFFERS, place
    assert status(*REFERENCE[:-1]) == DIFFERS
    assert status(*REFERENCE[:-1], float("nan")) == DIFFERS
    assert status(*REFERENCE[:-1], float("inf")) == DIFFERS


def test_after_an_update_that_the_scaler_skipped_the_loss_must_still_fall() -> None:
    def found(*losses: float) -> tuple[str, str]:
        finding = training.verdict(Training(list(losses), 0.0, 1), REFERENCE, 1e-3)
        return finding.status, finding.words

    status, words = found(0.9, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)  # one step behind
    assert status == OK and "up to step 1, whose update the scaler skipped" in words
    assert found(*[0.9] * 7)[0] == DIFFERS
    assert found(0.91, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)[0] == DIFFERS


def test_the_reference_must_fall(here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_training, "train", lambda folder, *words: Training(REFERENCE, 1.0))
    assert training.float32(here).status == OK
    monkeypatch.setattr(small_training, "train", lambda folder, *words: Training(REFERENCE[::-1], 1.0))
    assert training.float32(here).status == DIFFERS


def test_a_fault_of_the_arithmetic_is_noticed_in_a_training(here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real training of a few steps: equal to itself in another layout, and not with a learning rate 1 % too large."""
    small = ("max_steps=5", "batch_size=8", *training.SMALLEST, *training.STEPS_ALONE)
    monkeypatch.setattr(small_training, "SMALL", (*small_training.SMALL, *small))
    assert training.channels_last(here).status == OK
    wrong = training.compared(here, "wrong", training.SAME_CPU, "optimizer.lr=0.00303")
    assert wrong.status == DIFFERS
    assert training.compared(here, "noise", training.SAME_CPU, "seed=1").status == DIFFERS


def written(folder: Path) -> Path:
    """A run folder with a checkpoint and a log."""
    content: dict[str, Any] = {
        "global_step": 30,
        "state_dict": {"weight": torch.linspace(0, 1, 7)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}}],
        "callbacks": {
            "EMA": {"0.9999": {"average": torch.ones(2)}},
            "Progress": {"seconds": time.time()},
            "RunRecord": {},
        },
    }
    save(content, folder / "checkpoints" / "last.ckpt")
    (folder / "metrics.jsonl").write_bytes(b'{"step": 30}\n')
    return folder


@pytest.mark.parametrize("key", ["state_dict", "optimizer_states", "callbacks", "metrics.jsonl"])
def test_one_bit_of_a_resumed_run_is_noticed(key: str, tmp_path: Path) -> None:
    one, other = (written(tmp_path / name) for name in ("one", "other"))
    assert resume.differences(one, other) == []
    if key == "metrics.jsonl":
        (other / key).write_bytes(b'{"step": 31}\n')
    else:
        path = other / "checkpoints" / "last.ckpt"
        content = load(path)
        node = {"state_dict": content["state_dict"], "callbacks": content["callbacks"]["EMA"]["0.9999"]}
        tensors = node.get(key) or content["optimizer_states"][0]["state"][0]
        tensor = next(iter(tensors.values()))
        tensor.view(torch.int32)[-1] ^= 1
        path.unlink()
        save(content, path)
    (fault,) = resume.differences(one, other)
    assert fault.startswith("other "), fault


def test_a_run_that_ends_before_its_kill_is_an_error(tmp_path: Path) -> None:
    pid = resume.forked(lambda: None, tmp_path / "run.log")
    with pytest.raises(RuntimeError, match="ended before step 16"):
        resume.kill(pid, tmp_path / "run")
    pid = resume.forked(lambda: 1 / 0, tmp_path / "run.log")
    with pytest.raises(RuntimeError, match="exit code 1: ZeroDivisionError"):
        resume.ended(pid, tmp_path / "run")


def test_a_kill_is_one(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 16, "train/loss": 1.0}\n')
        time.sleep(60)

    assert resume.kill(resume.forked(work, tmp_path / "run.log"), tmp_path / "run") == 16


def test_samples_that_depend_on_the_batch_size_or_the_device_differ(tmp_path: Path) -> None:
    a = torch.linspace(-1, 1, 9)
    assert generation.agree({"two batch sizes": (a, a + 5e-5), "cpu": (a, a + 9e-4)}, 1.0).status == OK
    assert generation.agree({"two batch sizes": (a, a + 2e-4)}, 1.0).status == DIFFERS
    assert generation.agree({"cpu": (a, a + 1.1e-3)}, 1.0).status == DIFFERS
    assert generation.agree({"cpu": (a, a * float("nan"))}, 1.0).status == DIFFERS


def test_samples_out_of_range_differ(here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    (here.folder / "float32").mkdir(parents=True)
    model = SimpleNamespace(module=torch.nn.Identity(), config={"solver": {"steps": 4}})
    monkeypatch.setattr("diffusion_lab.cli.load.load_run", lambda folder: model)
    for largest, status in ((1.0, OK), (1.1, DIFFERS)):
        monkeypatch.setattr(generation, "samples", lambda *_, top=largest: torch.full((4, 1, 2, 2), top))
        assert generation.sampling(here).status == status


def test_features_of_a_damaged_extractor_differ(here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert generation.features_of_digits(here).status == OK
    intact = ClassifierFeatures.load

    def damaged(self: ClassifierFeatures) -> torch.nn.Module:
        network = intact(self)
        with torch.no_grad():
            max(network.parameters(), key=torch.numel).mul_(-1)
        return network

    monkeypatch.setattr(ClassifierFeatures, "load", damaged)
    finding = generation.features_of_digits(here)
    assert finding.status == DIFFERS and "classified correctly" in finding.words


def test_what_a_cpu_has_not_is_not_possible(here: CheckPlace) -> None:
    for check in (training.tf32, training.float16_with_loss_scaler, training.two_processes_fsdp):
        assert check(here).status == IMPOSSIBLE


def test_no_compiler_no_compilation(here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    finding = training.compiled(here)
    assert finding.status == IMPOSSIBLE and "no-such-compiler" in finding.words


@pytest.mark.parametrize("check", checks_of(machine), ids=lambda check: check.function)
def test_the_facts_of_this_machine(check: Any, here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(here.work / "cache"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(here.work / "netrc"))
    finding = check.run(here)
    assert finding.status in (OK, IMPOSSIBLE) and finding.words and not finding.crashed, finding


def test_a_library_of_another_version_differs(here: CheckPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    known, others = machine.versions, {"torch": {"torch": "1.13"}, "rich": {}}
    monkeypatch.setattr(machine, "versions", lambda name: others.get(name, known(name)))
    finding = machine.libraries(here)
    assert finding.status == DIFFERS and "torch 1.13, needed is >=2.6" in finding.words
    assert "rich is missing" in finding.words


def test_a_build_for_cpus_beside_a_driver_differs(
    here: CheckPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\n")
    monkeypatch.setattr(machine, "DRIVER", driver)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.pytorch(here).status == DIFFERS
    finding = machine.accelerators(here)
    assert finding.status == DIFFERS and "NVIDIA driver 550.54.14" in finding.words


def test_a_cache_that_cannot_be_written_to_and_a_full_disk_differ(
    here: CheckPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("DIFFUSION_LAB_CACHE", raising=False)
    assert machine.caches(here).status == DIFFERS
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2e8))
    assert machine.free_disk_space(here).status == DIFFERS


def test_weights_of_inception_that_are_damaged_differ(
    here: CheckPlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from diffusion_lab.metrics.inception import FILE

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    assert machine.inception_weights(here).status == generation.features_of_inception(here).status == IMPOSSIBLE
    (tmp_path / "checkpoints" / FILE).write_bytes(b"not the weights")
    assert machine.inception_weights(here).status == DIFFERS


def test_a_job_of_a_sweep_that_fails_is_noticed_with_its_cause(
    here: CheckPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an H100, where the jobs were copies of a process that had used the GPU."""
    error = {"type": "AcceleratorError", "message": "CUDA error: initialization error"}

    def command(folder: Path, *words: str) -> None:
        write_run(folder / "a", "uniform", 0)
        write_run(folder / "b", "uniform", 1, result="failed", error=error)
        raise RuntimeError("exit code 1: next: ..")

    monkeypatch.setattr(training, "command", command)
    finding = training.sweep(here)
    assert finding.status == DIFFERS
    assert finding.words == "1 of 2 jobs done; AcceleratorError: CUDA error: initialization error"
