"""Changed data are noticed before a run goes on, and nothing of its folder is changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.app import App
from diffusion_lab.cli.commands.train import _other_data
from diffusion_lab.cli.config import plain
from diffusion_lab.cli.errors import ConfigError, InvalidConfig
from diffusion_lab.cli.main import main
from diffusion_lab.cli.moved_images import typed_places, with_places
from diffusion_lab.cli.outcome import nothing_to_do
from diffusion_lab.cli.recorded_words import with_recorded_words
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.cli.same_data import check_same_data
from diffusion_lab.cli.same_run import check_origin, check_same_run, differences
from diffusion_lab.cli.untrusted_run import recorded_init_identity
from diffusion_lab.failure import MissingData, OtherData
from diffusion_lab.runs.signature import signed
from tests.data.test_recorded import folder

TRAIN = """train dataset=image_folder dataset.conditional=true dataset.source.image_size=8 base=ddpm network=unet_tiny
    network.base_channels=8 batch_size=8 metrics=none ~callbacks.generation trainer=cpu threads=1 hydra.run.dir=run
    schedule.num_timesteps=40 solver.steps=4 dataset.source.root=set dataset.source.cache_dir=cache""".split()


def data(composed, root: Path):
    words = (
        "dataset=image_folder",
        "dataset.conditional=true",
        "dataset.source.image_size=8",
        f"dataset.source.root={root}",
        f"dataset.source.cache_dir={root.parent}/cache",
    )
    return RunParts(composed(*words))["dataset"]


def test_a_run_goes_on_with_the_same_data_alone(composed, tmp_path: Path) -> None:
    root, place = folder(tmp_path / "set", 40), tmp_path / "run"
    place.mkdir()
    check = lambda: check_same_data(Mock(get=lambda key: None), place, data(composed, root))  # noqa: E731
    check()  # no record
    (place / "run.json").write_text(json.dumps({"config": {}}))
    check()  # the record is damaged
    (place / "run.json").write_text(json.dumps({"data": data(composed, root).describe().plain()}))
    check()
    shutil.copy(root / "a" / "00.png", root / "a" / "x.png")
    shutil.copy(root / "a" / "02.png", root / "b" / "x.png")
    (root / "b" / "01.png").unlink()
    with pytest.raises(
        OtherData, match=r"36 training and 4 test images -> 36 training and 5 test images. Restore them; or "
    ):
        check()


def test_a_run_that_is_done_says_that_its_data_have_changed(composed, tmp_path: Path, monkeypatch) -> None:
    """It said "nothing to do", and proposed a command that was then refused."""
    monkeypatch.chdir(tmp_path)
    root, place = folder(tmp_path / "set", 40), tmp_path / "run"
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"data": data(composed, root).describe().plain()}))
    parts = {"dataset": data(composed, root)}
    assert _other_data(place, parts) == "" and _other_data(place, None) == ""
    shutil.copy(root / "a" / "00.png", root / "a" / "x.png")
    changes = _other_data(place, {"dataset": data(composed, root)})
    said = nothing_to_do(place, 5, changes)
    assert "other data than there are now: 36 training and 4 test images -> " in said and "anew=true" in said
    assert "resume=" not in said


def test_images_that_were_moved_are_left_to_the_comparison_of_the_data(composed, tmp_path: Path) -> None:
    root = folder(tmp_path / "set", 12)
    words = ["dataset=image_folder", "dataset.source.image_size=8", f"dataset.source.root={root}"]
    saved, record = plain(composed(*words)), {"data": data(composed, root).describe().plain()}
    moved = [*words[:-1], "dataset.source.root=/new/place", "dataset.source.cache_dir=/other"]
    check_same_run(composed(*moved), saved, 0, record)
    check_origin(composed(*moved), saved, "run=R")
    for damaged in (None, {}, {"data": {}}):  # nothing says what the images were
        with pytest.raises(InvalidConfig, match="source.root=/new/place must equal the checkpoint's"):
            check_same_run(composed(*moved), saved, 0, damaged)
    for other in ("dataset.source.test_share=0.2", "dataset.source.resize=box_bicubic", "dataset.flip=False"):
        with pytest.raises(InvalidConfig, match=f"{other} must equal"):
            check_same_run(composed(*moved, other), saved, 0, record)


def test_a_command_that_reads_a_run_takes_the_place_of_its_images_and_nothing_else_of_them(composed, tmp_path) -> None:
    root = folder(tmp_path / "set", 12)
    cfg = composed("dataset=image_folder", "dataset.source.image_size=8", f"dataset.source.root={root}")
    words = with_recorded_words("evaluate", ["run=R", "dataset.source.root=/new/place"])
    assert words == ["run=R", "+moved.root=/new/place"]
    moved = typed_places(DictConfig({"moved": {"root": "/new/place"}}))
    there = with_places(cfg, moved)
    assert there.dataset.source == {**cfg.dataset.source, "root": "/new/place"}
    assert cfg.dataset.source.root == str(root)
    with pytest.raises(ConfigError, match="image_size=9 must be a place .* use dataset.source.cache_dir, dataset.sour"):
        with_places(cfg, {"dataset.source.image_size": 9})


def test_images_that_are_missed_are_no_fault_of_ours_and_the_cure_is_said(composed, tmp_path: Path) -> None:
    root, run = folder(tmp_path / "set", 12), tmp_path / "run"
    lost, record = data(composed, root), {"data": data(composed, root).describe().plain()}
    run.mkdir()
    words = ["dataset=image_folder", "dataset.source.image_size=8", f"dataset.source.root={root}"]
    (run / "run.json").write_text(json.dumps({"config": plain(composed(*words)), **record}))
    shutil.move(root, tmp_path / "elsewhere")
    for read in (lost.source.test, lambda: lost.reference("train"), lost.prepare_data):  # as metrics and analyses do
        with pytest.raises(MissingData) as error:
            read()
        app = App("evaluate", [f"run={run}"], [])
        (said,) = app.faults(error.value)
        assert said.startswith(f"dataset.source.root={root} must be a folder of images")
        assert said.endswith("; if they were moved, add dataset.source.root=NEW/PLACE")
    assert not App("train", [], []).faults(error.value)[0].endswith("NEW/PLACE")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the log of a run that is not closed
def test_a_resume_verify_and_evaluation_on_other_images_are_refused(in_folder: Path, capfd) -> None:
    folder(in_folder / "set", 40)
    assert main([*TRAIN, "max_steps=2"]) == 0, capfd.readouterr().err
    record = json.loads((in_folder / "run" / "run.json").read_text())["data"]
    assert (record["train"]["images"], record["test"]["images"], record["classes"]) == (36, 4, ["a", "b"])
    shutil.copytree(in_folder / "set", in_folder / "other")
    shutil.copy(in_folder / "set" / "a" / "00.png", in_folder / "other" / "a" / "x.png")
    shutil.move(in_folder / "set", in_folder / "kept")
    shutil.move(in_folder / "other", in_folder / "set")
    before = _files(in_folder / "run")
    for words in (["train", "resume=run", "max_steps=4", *TRAIN[-2:]], [*TRAIN, "max_steps=4"]):
        assert main(words) == 2
        assert "36 training and 4 test images -> 36 training and 5 test images" in capfd.readouterr().err
    assert _files(in_folder / "run") == before
    assert main(["verify", "run", *TRAIN[-2:]]) == 1
    assert "cannot say" in capfd.readouterr().out
    shutil.move(in_folder / "set", in_folder / "changed")
    shutil.move(in_folder / "kept", in_folder / "set")
    assert main(["train", "resume=run", "max_steps=4", *TRAIN[-2:]]) == 0, capfd.readouterr().err
    shutil.move(in_folder / "set", in_folder / "moved")
    words = ["train", "resume=run", "max_steps=6", "dataset.source.root=moved", TRAIN[-1]]
    assert main(words) == 0, capfd.readouterr().err
    assert json.loads((in_folder / "run" / "run.json").read_text())["config"]["dataset"]["source"]["root"] == "moved"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the log of a run that is not closed
def test_a_conditional_run_needs_no_images_to_be_sampled_shown_and_exported(in_folder: Path, capfd) -> None:
    folder(in_folder / "set", 40)
    assert main([*TRAIN, "max_steps=2", "solver.steps=2"]) == 0, capfd.readouterr().err
    sample = ["sample", "run=run", "seeds=0-1", "labels=[b]"]
    assert main([*sample, "outdir=first"]) == 0
    assert "classes: 1 b" in capfd.readouterr().out
    (in_folder / "set" / "0").mkdir()
    shutil.copy(in_folder / "set" / "a" / "00.png", in_folder / "set" / "0")
    assert main([*sample, "outdir=second"]) == 0, capfd.readouterr().err
    for words in (
        ["evaluate", "metrics.names=[bits_per_dim]", "metrics.num_samples=2"],
        ["analyze", "analysis=per_timestep"],
    ):
        assert main([words[0], "run=run", *words[1:]]) == 2
        said = capfd.readouterr().err
        assert "source=set must be the data that the run was trained with" in said and "classes: 0 added" in said, said
    assert main(["train", "resume=run", "max_steps=4", *TRAIN[-2:]]) == 2
    assert "classes: 0 added" in capfd.readouterr().err
    shutil.move(in_folder / "set", in_folder / "elsewhere")
    assert main([*sample, "outdir=third"]) == 0, capfd.readouterr().err
    for name in ("second", "third"):
        first, again = (in_folder / outdir / "images" / "000000.png" for outdir in ("first", name))
        assert again.read_bytes() == first.read_bytes()
    capfd.readouterr()
    evaluate = ["evaluate", "run=run", "metrics.names=[bits_per_dim]", "metrics.num_samples=2"]
    for words in (evaluate, ["analyze", "run=run", "analysis=per_timestep"], ["train", "resume=run", "max_steps=4"]):
        assert main(words) == 2
        said = capfd.readouterr().err
        assert "there is none at" in said and "; if they were moved, add dataset.source.root=NEW/PLACE\n" in said
    shutil.rmtree(in_folder / "elsewhere" / "0")
    assert main([*evaluate, "dataset.source.root=elsewhere"]) == 0, capfd.readouterr().err
    (in_folder / "elsewhere" / "a" / "00.png").unlink()
    assert main([*evaluate, "dataset.source.root=elsewhere"]) == 2
    assert "must be the data that the run was trained with, and has changed" in capfd.readouterr().err
    assert main(["show", "run"]) == 0
    assert "classes: 0 a, 1 b" in capfd.readouterr().out
    assert main(["export", "run=run"]) == 0, capfd.readouterr().err
    record = json.loads((in_folder / "run" / "run.json").read_text())
    del record["data"]
    (in_folder / "run" / "run.json").write_text(json.dumps(signed(record)))
    assert main(sample) == 2
    assert "run=run: its run.json must say under `data` what its data were; it is damaged" in capfd.readouterr().err


def _files(folder: Path) -> dict[str, bytes]:
    files = (
        path for path in folder.rglob("*") if path.is_file() and ".hydra" not in path.parts and path.suffix != ".log"
    )
    return {str(path): path.read_bytes() for path in files}


def test_a_key_that_begins_as_one_that_may_change_may_not() -> None:
    saved = {"callbacks": {"checkpoint": {"every": 1}, "checkpoint_watcher": {"strength": 1}}, "max_steps": 1}
    now = OmegaConf.create(
        {"callbacks": {"checkpoint": {"every": 2}, "checkpoint_watcher": {"strength": 9}}, "max_steps": 5}
    )
    assert differences(saved, now) == {"callbacks.checkpoint_watcher.strength": (1, 9)}


@pytest.mark.parametrize("start", [5, True, 1.5, "path", []])
def test_a_start_that_no_run_records_is_one_sentence(start: object) -> None:
    """A number there ended in a traceback of `show` and of `train resume=`."""
    with pytest.raises(ConfigError, match="^init_from=.* must be what a run records there; it is damaged"):
        recorded_init_identity({"init_from": start})
