"""A full disk, a limit on files and an allocation that fails end any command with one sentence and no partial file."""

from __future__ import annotations

import errno
import os
import resource
import signal
from pathlib import Path

import pytest
import torch

from diffusion_lab.cli.commands import train
from diffusion_lab.cli.main import main
from diffusion_lab.cli.output_folders import all_or_nothing
from diffusion_lab.cli.resource_errors import full_disk, no_memory
from diffusion_lab.metrics import save_grid


@pytest.fixture
def small_files():
    """Files of this process can have at most 4 KiB, as under a quota."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does at its start
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/model.pt")


COMMANDS = {"sample": "run=run", "evaluate": "run=run", "export": "run=run", "analyze": "run=run", "encode": "outdir=o"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_sentence_in_every_command(command, in_folder, monkeypatch, capsys):
    def fails(cfg) -> None:
        raise full()

    monkeypatch.setattr("diffusion_lab.cli.app.check_run_arguments", lambda *_: None)
    monkeypatch.setattr(f"diffusion_lab.cli.commands.{command}.run", fails)
    assert main([command, COMMANDS[command]]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("failed: a file cannot be written (No space left on device: out/model.pt); free some space")


@pytest.mark.parametrize("command", ["report", "verify"])
def test_also_in_commands_that_read_their_own_arguments(command, in_folder, monkeypatch, capsys):
    def fails(words) -> int:
        raise full()

    monkeypatch.setattr(f"diffusion_lab.cli.commands.{command}.main", fails)
    assert main([command, "runs"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("failed: No space left on device: out/model.pt; free some space")


def test_what_libraries_say_of_a_full_disk_is_understood():
    said = [
        RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)"),
        OSError("4096 requested and 0 written"),
        RuntimeError("[enforce fail at inline_container.cc:672] . PytorchStreamWriter failed writing file data/1"),
    ]
    assert all(full_disk(error) for error in said)
    outer = ValueError("could not be saved")
    outer.__cause__ = full()
    assert full_disk(outer) == "No space left on device: out/model.pt"
    for other in (OSError(errno.EACCES, "Permission denied"), ValueError("28 values"), KeyError("os error")):
        assert full_disk(other) is None and no_memory(other) is None


def test_an_export_is_written_whole_or_not_at_all(tmp_path, small_files):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    for folder in (tmp_path / "kept", tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        with pytest.raises(OSError, match="too large"), all_or_nothing(folder) as place:
            (place / "config.json").write_text("{}")
            (place / "unet").mkdir()
            (place / "unet" / "model.bin").write_bytes(bytes(8192))
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "notes.txt"]
    with all_or_nothing(tmp_path / "kept") as place:
        (place / "unet").mkdir()
        (place / "unet" / "model.bin").write_bytes(bytes(100))
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["notes.txt", "unet"]


def test_a_grid_that_cannot_be_written_leaves_nothing(tmp_path, small_files):
    noise = torch.randint(0, 256, (4, 3, 64, 64), dtype=torch.uint8)
    with pytest.raises(OSError, match="too large"):
        save_grid(noise, tmp_path / "grid.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory. Tried"), "cpu", "sizes"])
def test_an_allocation_that_fails_while_building_is_one_sentence(error, composed, monkeypatch):
    words = {
        "cpu": "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried to allocate",
        "sizes": "Storage size calculation overflowed with sizes=[4611686018427387904, 8]",
    }
    raised = RuntimeError(words[error]) if isinstance(error, str) else error

    def fails(*args, **named) -> None:
        raise raised

    monkeypatch.setattr("diffusion_lab.cli.build.build_run", fails)
    with pytest.raises(train.OutOfMemory, match="not suffice to build the run: .*; use a smaller network"):
        train.run(composed("scale=smoke", "metrics=none"))


def test_an_allocation_that_fails_elsewhere_is_one_sentence(in_folder, monkeypatch, capsys):
    monkeypatch.setattr("diffusion_lab.cli.app.check_run_arguments", lambda *_: None)
    monkeypatch.setattr("diffusion_lab.cli.commands.sample.run", lambda cfg: bytearray(1 << 62))
    assert main(["sample", "run=run"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("failed: the memory of this machine does not suffice")
    assert not Path("run").exists()


def test_what_may_not_be_read_is_a_sentence(
    in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "closed/run.json")

    monkeypatch.setattr("diffusion_lab.cli.commands.report.main", refuse)
    assert main(["report", "closed"]) == 2
    assert "closed/run.json must be readable" in capsys.readouterr().err
    monkeypatch.setattr("diffusion_lab.cli.app.check_run_arguments", lambda *_: None)
    monkeypatch.setattr("diffusion_lab.cli.commands.export.run", refuse)
    assert main(["export", "run=closed"]) == 1
    assert "failed: closed/run.json must be readable" in capsys.readouterr().err
