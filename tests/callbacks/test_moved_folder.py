"""A run folder that is moved or removed while it trains: a sentence, nothing lost, and no second folder."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from lightning.pytorch import Callback

from diffusion_lab import held_folder
from diffusion_lab.cli import build
from diffusion_lab.cli.commands.train import run
from diffusion_lab.cli.main import main
from diffusion_lab.files import write_whole
from diffusion_lab.held_folder import FolderMoved, current, hold
from diffusion_lab.runs.lines import append_evaluations, append_lines
from diffusion_lab.runs.record import read_result
from diffusion_lab.training.checkpoint_io import load, save
from tests.harness import configuration, differences, final_state

FEW = ("max_steps=6", "network.channel_multipliers=[1]", "batch_size=8", "dataset.val_images=16", "threads=1")


class After(Callback):
    """Does something after a step, before the step's own files are written."""

    def __init__(self, step: int, act) -> None:
        self.step, self.act = step, act

    def on_before_zero_grad(self, trainer, *_) -> None:
        if trainer.global_step == self.step and self.act is not None:
            act, self.act = self.act, None
            act()


def train(monkeypatch, folder: Path, act=None, *more: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(build, "build_run", partial(build.build_run, more=[After(2, act)]))
        run(configuration(folder, *FEW, *more))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The final state of a run that stays where it is."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(configuration(folder, *FEW))
    return final_state(folder)


def test_a_moved_run_stops_and_goes_on_where_it_is_now(tmp_path, monkeypatch, whole):
    here, there = tmp_path / "runs" / "run", tmp_path / "kept" / "other name"
    there.parent.mkdir()
    with pytest.raises(FolderMoved, match=r"moved to '.*other name' .* train .*resume=.*other name.*` goes on"):
        train(monkeypatch, here, lambda: here.rename(there))
    assert not here.exists()
    assert read_result(there)["status"] == "interrupted" and (there / "run.json").exists()
    assert load(there / "checkpoints" / "last.ckpt")["global_step"] == read_result(there)["step"] < 6
    train(monkeypatch, there)
    assert read_result(there)["status"] == "done" and not here.exists()
    assert differences(final_state(there), whole) == []


def test_a_run_in_whose_place_there_is_another_folder_leaves_that_one_alone(tmp_path, monkeypatch):
    here, there = tmp_path / "run", tmp_path / "there"

    def swap() -> None:
        here.rename(there)
        here.mkdir()
        (here / "mine.txt").write_text("mine")

    with pytest.raises(FolderMoved, match="moved to"):
        train(monkeypatch, here, swap)
    assert [path.name for path in here.iterdir()] == ["mine.txt"]
    assert (there / "checkpoints" / "last.ckpt").exists()


def test_a_run_that_writes_nothing_until_its_end_is_not_done_in_a_folder_that_is_gone(tmp_path, monkeypatch):
    here, there = tmp_path / "run", tmp_path / "there"
    quiet = ("log_every=100", "snapshot_every=0", "checkpoint_every=0", "~callbacks.validation")
    with pytest.raises(FolderMoved, match="moved to"):
        train(monkeypatch, here, lambda: here.rename(there), *quiet)
    assert not here.exists()
    assert load(there / "checkpoints" / "last.ckpt")["global_step"] == 6


def test_a_removed_run_stops_and_its_folder_is_not_made_again(tmp_path, monkeypatch):
    here = tmp_path / "runs" / "run"
    with pytest.raises(FolderMoved, match=r"removed, .* `diffusion-lab train resume=COPY` goes on"):
        train(monkeypatch, here, lambda: shutil.rmtree(here.parent))
    assert list(tmp_path.iterdir()) == []


def test_a_run_whose_files_were_removed_has_its_record_at_the_end(tmp_path, monkeypatch):
    here = tmp_path / "run"
    train(monkeypatch, here, lambda: [path.unlink() for path in here.glob("*.json*")])
    assert json.loads((here / "run.json").read_text())["config"]["max_steps"] == 6
    assert read_result(here)["status"] == "done"


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: save({"global_step": 1}, folder / "checkpoints" / "last.ckpt"),
        lambda folder: write_whole(folder / "samples" / "step.png", b""),
        lambda folder: append_lines(folder / "lines" / "metrics.jsonl", [{"step": 1}]),
    ],
)
def test_a_folder_that_is_removed_between_a_look_and_a_write_is_not_made_again(write, tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(FolderMoved, match="was removed"), hold(run):
        with monkeypatch.context() as patch:
            patch.setattr(
                held_folder._Held, "place", lambda self: shutil.rmtree(run, ignore_errors=True) or self.folder
            )
            write(run)
    assert not run.exists()


def test_a_held_folder_is_found_where_it_is_or_is_gone(tmp_path):
    run, file = tmp_path / "a" / "run", Path("deep") / "file"
    run.mkdir(parents=True)
    with pytest.raises(FolderMoved, match="moved to .*/c while"), hold(run):
        assert current(run / file) == run / file and current(tmp_path / "a" / "runs") == tmp_path / "a" / "runs"
        (tmp_path / "a").rename(tmp_path / "b")  # a folder above it
        assert current(run / file) == tmp_path / "b" / "run" / file and current(run) == tmp_path / "b" / "run"
        (tmp_path / "b" / "run").rename(tmp_path / "c")
        assert current(run / file) == tmp_path / "c" / file
    assert current(run / file) == run / file  # it is not held any more
    with pytest.raises(FolderMoved, match="removed"), hold(tmp_path / "c"):
        (tmp_path / "c").rmdir()
        raise FileNotFoundError("what another library says")
    with pytest.raises(ValueError, match="its own"), hold(tmp_path / "b"):
        raise ValueError("its own")
    with hold(tmp_path / "none"):
        assert current(tmp_path / "none" / "x") == tmp_path / "none" / "x"


@pytest.mark.parametrize("gone", [False, True])
def test_a_run_that_is_moved_while_it_is_evaluated_keeps_its_evaluations(gone, in_folder, monkeypatch, capsys):
    (in_folder / "run").mkdir()

    def measure(cfg) -> None:
        shutil.rmtree("run") if gone else Path("run").rename("there")
        append_evaluations(Path(cfg.run), [{"step": 1, "name": "fd"}])

    monkeypatch.setattr("diffusion_lab.cli.app.check_run_arguments", lambda *_: None)
    monkeypatch.setattr("diffusion_lab.cli.commands.evaluate.run", measure)
    assert main(["evaluate", "run=run"]) == 1
    assert not Path("run").exists() and Path("there/evaluations.jsonl").exists() is not gone
    words = "run was removed" if gone else "run was moved to there while it was in use; what was written since then is"
    assert f"failed: {words}" in capsys.readouterr().err
