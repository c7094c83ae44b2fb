"""Where a folder stands, through the command line: damage is said, not trained over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from diffusion_lab.cli.main import main
from diffusion_lab.training import checkpoint_io
from diffusion_lab.training.checkpoint_io import load, save
from tests.harness import Child

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")]
SHORT = [
    *("train", "trainer=cpu", "dataset=digits", "network=unet_tiny", "network.base_channels=8", "batch_size=8"),
    *("network.channel_multipliers=[1]", "schedule.num_timesteps=100", "log_every=1"),
    *("~callbacks.validation", "~callbacks.generation"),
    *("checkpoint_every=2", "hydra.run.dir=run", "threads=1"),
]


@pytest.fixture
def run_folder(in_folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Path:
    """A run that stands at step 4 of 6, with a checkpoint of step 2 before it."""
    from diffusion_lab.callbacks import Progress

    with monkeypatch.context() as patch:
        original = Progress.on_step_end

        def fail(self, trainer, module, step, records):
            if step == 5:
                raise RuntimeError("as a power failure")
            original(self, trainer, module, step, records)

        patch.setattr(Progress, "on_step_end", fail)
        assert train() == 1
    capfd.readouterr()
    (in_folder / "run" / "result.json").unlink()
    assert load(in_folder / "run" / "checkpoints" / "last.ckpt")["global_step"] == 4
    return in_folder / "run"


def train(*more: str) -> int:
    return main([*SHORT, "max_steps=6", *more])


def files(folder: Path) -> dict[str, bytes]:
    """All that a refused command must leave as it is."""
    kept = (path for path in folder.rglob("*") if path.is_file() and ".hydra" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def refused(folder: Path, capfd: pytest.CaptureFixture[str], *more: str) -> str:
    """What is said; one sentence, exit code 2, nothing changed."""
    before = files(folder)
    assert train(*more) == 2
    said = capfd.readouterr()
    lines = said.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("config error: "), said
    assert files(folder) == before
    return lines[0]


def test_both_damaged_is_refused_and_anew_keeps_the_files(run_folder, capfd):
    for name in ("last", "previous"):
        damage(run_folder / "checkpoints" / f"{name}.ckpt")
    said = refused(run_folder, capfd)
    assert "last.ckpt" in said and "previous.ckpt" in said
    assert "Bring one back" in said and "anew=true" in said
    before = files(run_folder)
    assert train("anew=true") == 0
    assert (
        f"starting {run_folder} from the beginning; its old files are in {run_folder}/before-1"
        in capfd.readouterr().out
    )
    kept = files(run_folder / "before-1")
    assert {name: before[name] for name in kept} == kept
    assert {"checkpoints/last.ckpt", "checkpoints/previous.ckpt", "metrics.jsonl", "run.json"} <= set(kept)
    result = json.loads((run_folder / "result.json").read_text())
    assert (result["status"], result["step"]) == ("done", 6)
    # Said once: the command that is kept does not start anew each time.
    assert not any("anew" in word for word in json.loads((run_folder / "run.json").read_text())["overrides"])
    assert train() == 0
    assert "nothing to do" in capfd.readouterr().out
    assert train("anew=true") == 0
    assert (run_folder / "before-2" / "result.json").exists()


def test_one_damaged_is_one_line_of_our_own(run_folder, capfd):
    damage(run_folder / "checkpoints" / "last.ckpt")
    assert train() == 0
    said = capfd.readouterr()
    (line,) = [line for line in (said.out + said.err).splitlines() if "last.ckpt" in line]
    assert line.startswith(f"passed over {run_folder}/checkpoints/last.ckpt: ")
    assert line.endswith("Using previous.ckpt of step 2")
    assert "warn" not in (said.out + said.err).lower()
    steps = [json.loads(line)["step"] for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)) == list(range(1, 7))


def test_a_newer_format_is_not_damage(run_folder, capfd, monkeypatch):
    path = run_folder / "checkpoints" / "last.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_io, "FORMAT", 9)
        save(load(path), path)
    said = refused(run_folder, capfd)
    assert "format 9" in said and "damaged" not in said and "checksum" not in said


@pytest.mark.parametrize("missing", [["callbacks"], ["callbacks", "loops", "optimizer_states"]])
def test_a_checkpoint_of_another_program(missing, run_folder, capfd):
    path = run_folder / "checkpoints" / "last.ckpt"
    content = load(path)
    save({key: value for key, value in content.items() if key not in missing}, path)
    said = refused(run_folder, capfd)
    assert all(name in said for name in missing) and "was not written by `diffusion-lab train`" in said


@pytest.mark.parametrize("way", ["deleted", "shortened"])
def test_a_record_that_is_gone_is_noticed(way, run_folder, capfd):
    record = run_folder / "metrics.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    record.unlink()
    if way == "shortened":
        record.write_bytes(lines[0])
    said = refused(run_folder, capfd)
    assert "metrics.jsonl" in said and "step 4" in said and "anew=true" in said and "empty file" in said
    record.write_bytes(b"")  # the cure that gives up what it said
    assert train() == 0
    assert [json.loads(line)["step"] for line in record.read_text().splitlines()] == [5, 6]


def test_memory_that_does_not_suffice_is_a_sentence(in_folder):
    """A real refusal of the allocator: 2 TB for the activations of one forward pass, in a process of its own."""

    def work():
        from diffusion_lab.diffusion import Denoiser

        Denoiser.loss = lambda *_, **__: torch.empty(1 << 49, dtype=torch.uint8)
        raise SystemExit(main([*SHORT, "max_steps=2"]))

    child = Child(work, in_folder / "log")
    assert child.wait() == 1
    said = child.log.read_text()
    assert "Traceback" not in said and "File " not in said
    (line,) = [line for line in said.splitlines() if line.startswith("failed: ")]
    assert "images_per_device=8" in line and "Use images_per_device=4" in line


@pytest.mark.parametrize("kind", ["cuda", "python"])
def test_other_words_for_no_memory(kind, in_folder, capfd, monkeypatch):
    from diffusion_lab.diffusion import Denoiser

    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB") if kind == "cuda" else MemoryError()

    def loss(self, *args, **kwargs):
        raise error

    monkeypatch.setattr(Denoiser, "loss", loss)
    assert train() == 1
    said = capfd.readouterr().err.strip()
    assert said.startswith("failed: the memory does not suffice for 8 images") and "images_per_device=4" in said
    assert "\n" not in said


def test_another_runtime_error_is_no_lack_of_memory(in_folder, capfd, monkeypatch):
    from diffusion_lab.diffusion import Denoiser

    def loss(self, *args, **kwargs):
        raise RuntimeError("something else")

    monkeypatch.setattr(Denoiser, "loss", loss)
    assert train() == 1
    assert "images_per_device" not in capfd.readouterr().err
