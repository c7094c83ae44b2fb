"""A reader that goes away (`| head -1`), a closed descriptor or a full disk under the output end nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from tests.harness import Child

TINY = ["scale=smoke", "max_steps=3", "network.base_channels=8", "trainer.accelerator=cpu", "~callbacks.generation"]
COMMAND = [sys.executable, "-m", "diffusion_lab.cli.main"]


def _without_a_reader(folder: Path, *words: str, both: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    errors = writer if both else subprocess.PIPE
    process = subprocess.Popen([*COMMAND, *words], cwd=folder, stdout=writer, stderr=errors, text=True)
    os.close(writer)
    said = process.communicate(timeout=120)[1]
    return process.returncode, said or ""


def _forked_without_a_reader(folder: Path, words: list[str]) -> None:
    """As above in a fork: what a command does, without the end of the interpreter, which is the same for all."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    os.chdir(folder)
    raise SystemExit(main(words))


def _results(folder: Path) -> list[tuple[str, int]]:
    found = [json.loads(path.read_text()) for path in folder.rglob("result.json")]
    return [(result["status"], result["step"]) for result in found]


def test_help_and_a_fault_without_a_reader(tmp_path: Path) -> None:
    assert _without_a_reader(tmp_path, "--help") == (0, "")
    assert _without_a_reader(tmp_path, "train", "--help") == (0, "")
    assert _without_a_reader(tmp_path, "trian", both=True) == (2, "")


@pytest.mark.slow
@pytest.mark.exhaustive  # the next test, with the end of the interpreter, which is that of `--help`
def test_a_run_goes_on_without_a_reader(tmp_path: Path) -> None:
    code, said = _without_a_reader(tmp_path, "train", *TINY)
    assert code == 0 and "BrokenPipe" not in said and "Traceback" not in said
    assert _results(tmp_path) == [("done", 3)]


@pytest.mark.slow
def test_every_command_goes_on_without_a_reader(tmp_path: Path) -> None:
    for words in (
        ["train", "-m", "seed=0,1", "name=two", *TINY],
        ["train", *TINY, "hydra.run.dir=run"],
        ["train", *TINY, "dry_run=true", "seed=5"],
        ["sample", "run=run", "seeds=0-3"],
        ["evaluate", "run=run", "metrics.num_samples=128", "metrics.names=[fid]"],
        ["report", "runs"],
    ):
        child = Child(lambda words=words: _forked_without_a_reader(tmp_path, words), tmp_path / "log")
        code, said = child.wait(), child.log.read_text()
        assert code == 0 and "BrokenPipe" not in said and "Traceback" not in said, (words, said)
    assert _results(tmp_path) == [("done", 3)] * 3
    assert (tmp_path / "run" / "evaluations.jsonl").is_file() and (tmp_path / "runs" / "report.html").is_file()


@pytest.mark.slow
def test_a_run_goes_on_with_closed_descriptors_and_on_a_full_disk(tmp_path: Path) -> None:
    shell = " ".join(["exec", *COMMAND, "train", *TINY])
    for number, streams in enumerate(("<&- >&- 2>&-", ">/dev/full 2>/dev/full")):
        assert subprocess.run(f"{shell} seed={number} {streams}", shell=True, cwd=tmp_path).returncode == 0, streams
    assert _results(tmp_path) == [("done", 3)] * 2
