"""`diffusion-lab verify`: yes for a run as it was trained, no after any change, and nothing is executed or written."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from diffusion_lab.cli.commands.verify import stopped_after
from diffusion_lab.cli.main import main
from diffusion_lab.cli.repetition import Repetition
from diffusion_lab.training.checkpoint_io import load, save
from tests.harness import Child

pytestmark = pytest.mark.slow
RUN = """max_steps=12 batch_size=16 checkpoint_every=4 keep_every=4 log_every=2 snapshot_every=6
    network.base_channels=8 metrics.num_samples=128 solver.steps=2 dataset.val_images=32
    trainer.accelerator=cpu threads=1""".split()
STEPS = 12


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    command(folder.parent / "log", "train", *RUN, f"hydra.run.dir={folder}")
    return folder


@pytest.fixture
def theirs(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(trained, tmp_path / "theirs"))


def command(log: Path, *words: str, code: int = 0) -> str:
    """What a command says, in a process of its own, which ends with the code."""
    log.unlink(missing_ok=True)

    def work() -> None:
        os.chdir(log.parent)
        raise SystemExit(main(list(words)))

    found = Child(work, log).wait()
    assert found == code, log.read_text()
    return log.read_text()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def edit_line(path: Path, number: int, edit: Callable[[dict[str, Any]], object]) -> None:
    lines = path.read_text().splitlines()
    row = json.loads(lines[number])
    edit(row)
    path.write_text("\n".join([*lines[:number], json.dumps(row), *lines[number + 1 :]]) + "\n")


def test_a_run_is_equal_to_its_repetition_and_is_not_written_to(theirs: Path, tmp_path: Path) -> None:
    before = files(theirs)
    said = command(tmp_path / "log", "verify", str(theirs))
    assert "equal: " in said and "4 checkpoints are equal to the bit, up to step 12" in said
    assert "up to step 5" in command(tmp_path / "log", "verify", str(theirs), "--steps", "5")
    assert files(theirs) == before and sorted(path.name for path in tmp_path.iterdir()) == ["log", "theirs"]


@pytest.mark.parametrize("word", ["dry_run=true", "max_steps=7"])
def test_words_that_end_the_repetition_early_are_refused(word: str, theirs: Path, tmp_path: Path) -> None:
    """Nothing of the run's later steps would be compared, and no line of it with dry_run."""
    said = command(tmp_path / "log", "verify", str(theirs), word, code=2)
    assert "of 12; leave out dry_run" in said and "equal: " not in said


def test_a_run_that_had_an_end_and_was_given_more_steps_is_repeated_so(tmp_path: Path) -> None:
    log, run = tmp_path / "log", tmp_path / "run"
    command(log, "train", *RUN, "max_steps=5", f"hydra.run.dir={run}")
    command(log, "evaluate", f"run={run}", "metrics.names=[sample_variance]", "metrics.num_samples=8")
    command(log, "train", f"resume={run}", "max_steps=8")
    said = command(log, "verify", str(run))
    assert "equal: " in said and "up to step 8, trained to step 5 and then on, as the run was" in said, said
    assert "verify-" not in said and "samples: " not in said and "next: " not in said
    for steps in ("5", "6"):
        assert "are equal to the bit" in command(log, "verify", str(run), "--steps", steps)
    edit_line(run / "metrics.jsonl", 2, lambda row: row.update({"train/loss": row["train/loss"] * (1 + 1e-12)}))
    assert "different: " in command(log, "verify", str(run), code=1)


def test_a_changed_value_is_found_and_with_other_versions_is_not_judged(theirs: Path, tmp_path: Path) -> None:
    edit_line(theirs / "metrics.jsonl", 2, lambda row: row.update({"train/loss": row["train/loss"] * (1 + 1e-12)}))
    said = command(tmp_path / "log", "verify", str(theirs), code=1)
    assert "metrics.jsonl, line 3: " in said and "different: " in said
    record = json.loads((theirs / "run.json").read_text())
    (theirs / "run.json").write_text(json.dumps(record | {"versions": record["versions"] | {"torch": "2.6.0"}}))
    said = command(tmp_path / "log", "verify", str(theirs), code=1)
    assert "cannot say: it differs, and was trained with other versions: torch 2.6.0 and " in said


def test_a_run_of_another_device_is_not_judged_nor_one_of_a_gpu_that_adds_in_any_order(
    trained: Path, theirs: Path, tmp_path: Path
) -> None:
    def on(folder: Path, device: str, **trainer: bool) -> Path:
        path = Path(shutil.copytree(folder, tmp_path / f"{device}{trainer}", dirs_exist_ok=True))
        record = json.loads((path / "run.json").read_text())
        assert record["device"] == "cpu"
        record["config"]["trainer"].update(trainer)
        (path / "run.json").write_text(json.dumps(record | {"device": device}))
        return path

    edit_line(theirs / "metrics.jsonl", 2, lambda row: row.update({"train/loss": row["train/loss"] * (1 + 1e-12)}))
    said = command(tmp_path / "log", "verify", str(on(theirs, "NVIDIA H100")), code=1)
    assert "cannot say: it differs, and was trained on another device: NVIDIA H100, and cpu here" in said
    gpus = on(theirs, "H100"), on(trained, "H100")
    assert "order that changes" in Repetition(*gpus, STEPS).not_judged()
    assert Repetition(on(theirs, "H100", deterministic=True), gpus[1], STEPS).not_judged() == ""


@pytest.mark.parametrize("place", [0.001, 0.5, 1.0])
def test_one_byte_of_a_checkpoint(place: float, trained: Path, theirs: Path) -> None:
    assert Repetition(theirs, trained, STEPS).faults() == []
    path = theirs / "checkpoints" / "last.ckpt"
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 1
    path.write_bytes(content)
    (fault,) = Repetition(theirs, trained, STEPS).faults()
    assert fault.startswith("last.ckpt: ")


def test_other_weights_with_a_checksum_of_their_own(trained: Path, theirs: Path) -> None:
    path = theirs / "checkpoints" / "step-00000008.ckpt"
    content = load(path)
    name = next(key for key, value in content["state_dict"].items() if value.is_floating_point())
    value = content["state_dict"][name]
    content["state_dict"][name] = torch.nextafter(value, torch.full_like(value, torch.inf))
    save(content, path)
    assert Repetition(theirs, trained, STEPS).faults() == ["step-00000008.ckpt: other weights"]


def test_lines_that_are_missing_added_or_no_json(trained: Path, theirs: Path) -> None:
    path = theirs / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for changed, says in (
        (lines[:-1], f"metrics.jsonl: {len(lines) - 1} lines up to step 12, and {len(lines)} here"),
        ([*lines, lines[-1]], f"metrics.jsonl: {len(lines) + 1} lines up to step 12, and {len(lines)} here"),
        (["{\n", *lines[1:]], "metrics.jsonl, line 1: {, and "),
    ):
        path.write_text("".join(changed))
        (fault,) = Repetition(theirs, trained, STEPS).faults()
        assert fault.startswith(says)


def test_an_evaluation_that_was_added_later_is_no_fault_and_a_changed_one_is(trained: Path, theirs: Path) -> None:
    path = theirs / "evaluations.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[-1].replace("fd", "kid", 1) + "\n")
    assert Repetition(theirs, trained, STEPS).faults() == []
    edit_line(path, 0, lambda row: row.update(value=0.5 * row["value"]))
    (fault,) = Repetition(theirs, trained, STEPS).faults()
    assert fault.startswith("evaluations.jsonl, line 1: ")


def test_another_configuration_than_the_recorded_one(trained: Path, theirs: Path) -> None:
    record = json.loads((theirs / "run.json").read_text())
    (theirs / "run.json").write_text(json.dumps(record | {"config_hash": "0" * 64}))
    (fault,) = Repetition(theirs, trained, STEPS).faults()
    assert fault.startswith("configuration: its hash is 00000000, and its settings give ")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("sampler._target_=numpy.load", "sampler._target_=numpy.load must be"),
        ("hydra.run.dir=elsewhere", "an override must not set hydra.run.dir"),
        ("callbacks.generation.directory=/tmp", "lies outside of the folder"),
    ],
)
def test_a_folder_from_elsewhere_is_refused_as_resume_refuses_it(
    word: str, says: str, theirs: Path, tmp_path: Path
) -> None:
    record = json.loads((theirs / "run.json").read_text())
    (theirs / "run.json").write_text(json.dumps(record | {"overrides": [*record["overrides"], word]}))
    assert says in command(tmp_path / "log", "verify", str(theirs), code=2)


def test_a_folder_that_is_no_run_and_a_step_that_it_has_not(theirs: Path, tmp_path: Path) -> None:
    assert "must be" in command(tmp_path / "log", "verify", str(tmp_path), code=2)
    assert "steps=13 must be in 2..12" in command(tmp_path / "log", "verify", str(theirs), "--steps", "13", code=2)
    (theirs / "metrics.jsonl").unlink()
    assert "must have logged something" in command(tmp_path / "log", "verify", str(theirs), code=2)


def test_the_signal_of_a_repetition_comes_once_its_log_is_there_and_ends_with_it(tmp_path: Path) -> None:
    before, came = signal.getsignal(signal.SIGTERM), []
    log = tmp_path / "metrics.jsonl"
    log.write_text('{"step": 3}\n')
    with stopped_after(log, 4):
        signal.signal(signal.SIGTERM, lambda *_: came.append(1))
        signal.sigtimedwait([], 0.5)
        assert came == []
        log.write_text('{"step": 3}\n{"step": 4}\n')
        signal.sigtimedwait([], 2.0)
    assert came == [1] and signal.getsignal(signal.SIGTERM) is before
