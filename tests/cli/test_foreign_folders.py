"""A run folder may come from anybody: nothing in it is executed, whichever command is given it.

One real run is trained; each case is a copy of its folder with a change that a stranger could make, and the payload, a
pickle that makes a file when it is loaded, beside it.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from diffusion_lab.cli.main import main
from diffusion_lab.cli.untrusted_run import references
from diffusion_lab.data import ImageFolder
from tests.harness import Child

SMALL = ("scale=smoke", "max_steps=2", "checkpoint_every=1", "network.base_channels=8", "trainer.accelerator=cpu")
LOAD = {"_target_": "numpy.load", "file": "evil.npy", "allow_pickle": True}
ANALYZE = ("analyze", "analysis=per_timestep", "analysis.images=2", "analysis.every=500")
EVALUATE = ("evaluate", "metrics.num_samples=300", "metrics.names=[fid]", "solver=ddim", "solver.steps=2")


class Payload:
    """Unpickling it makes the file `marker` in the working folder."""

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return open, ("marker", "w")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps, signed by somebody else."""
    folder = tmp_path_factory.mktemp("theirs") / "run"
    words = ["train", *SMALL, f"hydra.run.dir={folder}"]

    def work() -> None:
        os.environ["XDG_CONFIG_HOME"] = str(folder.parent / "settings")
        exit_with(words)

    Child(work, folder.parent / "log").succeed()
    return folder


def exit_with(words: list[str]) -> None:
    raise SystemExit(main(words))


@pytest.fixture
def theirs(trained: Path, in_folder: Path) -> Path:
    """A copy of the run in the working folder, with the payload in the working folder and in the copy."""
    shutil.copytree(trained, in_folder / "theirs")
    for place in (in_folder, in_folder / "theirs"):
        (place / "evil.npy").write_bytes(pickle.dumps(Payload()))
    return Path("theirs")


def change(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    record = json.loads((folder / "run.json").read_text())
    edit(record)
    (folder / "run.json").write_text(json.dumps(record))


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of run.json's configuration: `value` at a dotted key."""

    def edit(record: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        node = record["config"]
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value

    return edit


def both(*edits: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    return lambda record: [edit(record) for edit in edits] and None


EVIL = put("callbacks.evil", LOAD)
CONFIGURATIONS = {
    "reference": both(EVIL, put("dataset.source", "${callbacks.evil}")),
    "relative reference": both(EVIL, put("dataset.source", "${..callbacks.evil}")),
    "created node": put("dataset.source", "${oc.create:{_target_: numpy.load, file: evil.npy, allow_pickle: true}}"),
    "values of a dict": both(EVIL, put("dataset.source", "${oc.dict.values:callbacks.evil}")),
    "reference elsewhere": both(put("metrics.evil", LOAD), put("dataset.features", "${metrics.evil}")),
    "a part that is not built": EVIL,
    "a node of its own": put("evil", LOAD),
    "in a list": put("callbacks.ema.decays", [LOAD]),
    "in the optimizer": put("optimizer._target_", "numpy.load"),
    "a function of ours": put("dataset.features._target_", "diffusion_lab.training.checkpoint_io.save"),
    "a class of ours, misplaced": put("dataset.features._target_", "diffusion_lab.training.DiffusionModule"),
    "a key that refers": put("dataset.${callbacks.evil}", 1),
    "the environment": put("dataset.source.root", "${oc.env:HOME}"),
    "an own class": put("sampler._target_", "evil.Evil"),
    "a metric": put("metric.evil", LOAD),
    "a class of one's own as a metric": put("metrics.metrics", [{"_target_": "evil.Evil"}]),
    "the command line itself": both(put("solver._target_", "diffusion_lab.cli.main.main"), put("solver.argv", [])),
    "no configuration": lambda record: record.update(config=5),
    "no data set": lambda record: record["config"].pop("dataset"),
    "no network": lambda record: record["config"].update(network="${dataset}"),
    "no seed": lambda record: record["config"].pop("seed"),
    "no parts": lambda record: record.update(config={}),
}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused in one sentence, with nothing executed; returns the sentence."""
    Path("evil.py").write_text("open('marker', 'w')\nclass Evil: pass\n")
    code = main(words)
    told = capsys.readouterr()
    assert code == 2, told
    assert told.err.startswith("config error: ") and "Traceback" not in told.err + told.out
    assert not Path("marker").exists()
    return told.err


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_configuration_that_was_read_back_executes_nothing(
    case: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(theirs, CONFIGURATIONS[case])
    before = sorted(theirs.rglob("*"))
    for command in (EVALUATE, ("sample", "seeds=0-3"), ANALYZE):
        assert refused([*command, f"run={theirs}"], capsys).count("\n") == 1
    assert sorted(theirs.rglob("*")) == before


PROFILER = "lightning.pytorch.profilers.SimpleProfiler"
OVERRIDES = {
    "a callback of Hydra's": "+hydra.callbacks.x={_target_: numpy.load, file: evil.npy, allow_pickle: true}",
    "a search path": "hydra.searchpath=[file://.]",
    "Hydra's launcher": "hydra/launcher=basic",
    "all of Hydra": "+hydra={callbacks: {x: {_target_: numpy.load, file: evil.npy, allow_pickle: true}}}",
    "an option": "--experimental-rerun=theirs/evil.npy",
    "a config folder": "--config-dir=theirs",
    "a short option": "-m=seed",
    "a folder by a short option": "-cd=theirs",
    "a reference": "dataset.source=${callbacks.evil}",
    "another package": "sampler@hydra.callbacks.x=uniform",
    "a place to write": "callbacks.checkpoint.directory=elsewhere/there",
    "a place without a slash": "callbacks.checkpoint.directory=elsewhere",
    "a cache": "dataset.source={_target_: diffusion_lab.data.ImageFolder, root: x, image_size: 8, cache_dir: there}",
    "a profiler's folder": f"+trainer.profiler={{_target_: {PROFILER}, dirpath: elsewhere}}",
    "a profiler's file": f"+trainer.profiler={{_target_: {PROFILER}, filename: '../x'}}",
    "a trainer's folder": "trainer.default_root_dir=elsewhere",
    "a model on a server": "+trainer.model_registry=theirs",
    "a place in a node": "+callbacks.x={_target_: diffusion_lab.callbacks.Checkpoint, directory: elsewhere}",
    "the run's folder": "paths.run_dir=elsewhere",
    "a yaml file elsewhere": "experiment=../../theirs/evil",
    "a file elsewhere": "+dataset.source.root=/etc",
    "a file in the home folder": "+dataset.source.root=~/x",
    "a loss curve elsewhere": "+sampler.loss_curve=/etc/data.npz",
    "a folder of images": "dataset={source: {_target_: diffusion_lab.data.ImageFolder, root: mine, image_size: 8}}",
    "an address": "+dataset.source.root=http://x.org/y",
    "a target": "+callbacks.x={_target_: numpy.load, file: evil.npy, allow_pickle: true}",
    "a target of its own": "sampler._target_=evil.Evil",
    "a metric": "+metric.evil={_target_: evil.Evil}",
    "a metric elsewhere": "metrics.names=[../../theirs/evil]",
    "a sweep": "seed=0,1",
    "no override": "seed",
    "a broken one": "seed=[",
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_overrides_that_were_read_back_execute_nothing(
    case: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(theirs, lambda record: record["overrides"].append(OVERRIDES[case]))
    refused(["train", f"resume={theirs}"], capsys)
    assert not Path("elsewhere").exists() and not Path("there").exists()


def test_a_reference_in_a_key_is_found() -> None:
    """Whatever other check may refuse such a key today."""
    assert list(references({"a": {"${b}": 1, "c": ["x", "${d}"]}})) == ["a.${b}", "a.c.1=${d}"]
    assert list(references({"a": {"b": 1, "c": ["$x", "{d}"]}})) == []


@pytest.mark.parametrize("overrides", [5, None, {"seed": 1}, [["seed=1"]], "seed=1"])
def test_overrides_that_are_none(overrides: Any, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(theirs, lambda record: record.update(overrides=overrides))
    assert "must be a list of texts" in refused(["train", f"resume={theirs}"], capsys)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"config": null}', "[" * 100_000])
def test_a_damaged_record_is_a_sentence(content: str, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (theirs / "run.json").write_text(content)
    readers = ([*command, f"run={theirs}"] for command in (EVALUATE, ("sample",), ANALYZE))
    for words in (*readers, ["train", f"resume={theirs}"]):
        refused(words, capsys)


@pytest.mark.parametrize("name", ["evaluations.jsonl", "checkpoints", "samples/step-00000002.png", ".lock", "run.json"])
def test_no_link_leads_out_of_the_folder(name: str, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever a command reads or writes there: it is refused, or the link is none of its business."""
    mine = Path("mine")
    mine.write_text('{"step": 1, "name": "my own words"}\n')
    place = theirs / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(mine.resolve())
    commands = {words[0]: [*words, f"run={theirs}"] for words in (EVALUATE, ("sample", "seeds=0"), ANALYZE)}
    commands |= {"train": ["train", f"resume={theirs}"], "show": ["show", str(theirs)]}
    concerned = {"evaluations.jsonl": {"evaluate", "train"}, "samples/step-00000002.png": {"train"}, ".lock": {"train"}}
    for command, words in commands.items():
        if command in concerned.get(name, commands):
            assert "outside of the folder" in refused(words, capsys)
        else:
            assert main(words) == 0 and "my own words" not in "".join(capsys.readouterr())
    assert mine.read_text() == '{"step": 1, "name": "my own words"}\n'


@pytest.mark.parametrize("checkpoint", ["../../other/checkpoints/last", "../last", "/elsewhere/x", "last.ckpt.ckpt"])
def test_a_checkpoint_is_a_name_in_the_runs_folder(
    checkpoint: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(theirs, "other")
    text = refused([*EVALUATE, f"run={theirs}", f"checkpoint='{checkpoint}'"], capsys)
    assert "must be one of last, previous" in text


def test_a_checkpoint_of_another_run_is_not_measured(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(theirs, put("optimizer.lr", 0.5))  # the checkpoint carries what it was trained with
    assert "is of one with optimizer.lr=0.0002 where run.json has 0.5" in refused([*EVALUATE, f"run={theirs}"], capsys)
    assert not (theirs / "evaluations.jsonl").exists()


def test_parts_typed_beside_a_run_are_checked_too(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("metrics._target_=numpy.load", "+solver={_target_: numpy.load, file: evil.npy, allow_pickle: true}"):
        assert "_target_=numpy.load" in refused(["evaluate", f"run={theirs}", words], capsys)


def test_the_folder_as_it_was_is_evaluated_and_resumed(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The control: what is refused above is the change, not the run."""
    assert main([*EVALUATE, f"run={theirs}", "checkpoint=previous"]) == 0
    assert json.loads((theirs / "evaluations.jsonl").read_text().splitlines()[-1])["step"] == 1
    assert main(["sample", f"run={theirs}", "seeds=0-3"]) == 0
    assert main([*ANALYZE, f"run={theirs}"]) == 0
    Child(lambda: exit_with(["train", f"resume={theirs}", "max_steps=3"]), Path("log")).succeed()
    assert json.loads((theirs / "result.json").read_text())["step"] == 3


def test_a_path_outside_is_taken_when_it_is_repeated(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(theirs, lambda record: record["overrides"].append("+dataset.source.root=/etc"))
    assert "repeat it: diffusion-lab train resume=theirs +dataset.source.root=/etc" in refused(
        ["train", f"resume={theirs}"], capsys
    )
    # It is then the user's word, and its own check's turn.
    text = refused(["train", f"resume={theirs}", "+dataset.source.root=/etc"], capsys)
    assert "Digits has no argument root" in text


def as_images(root: str) -> Callable[[dict[str, Any]], None]:
    """An edit of run.json: the data set is a folder of images, and their record that of those there."""
    source = {"_target_": "diffusion_lab.data.ImageFolder", "root": root, "image_size": 8, "channels": 1}
    data = ImageFolder(root, 8, 1).record().plain()
    return both(put("dataset.source", source), lambda record: record.update(data=data))


@pytest.mark.parametrize(
    "root", ["photos", pytest.param("./photos", marks=pytest.mark.exhaustive), "{here}/photos", "theirs/../photos"]
)
def test_a_record_does_not_choose_which_files_are_read(
    root: str, theirs: Path, in_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(20):
        Path("photos").mkdir(exist_ok=True)
        Image.new("L", (8, 8), 12 * k).save(f"photos/{k}.png")
    root = root.format(here=in_folder)
    change(theirs, as_images(root))
    monkeypatch.setattr("diffusion_lab.cli.load.check_origin", lambda *_: None)
    for words in (EVALUATE, ANALYZE):
        text = refused([*words, f"run={theirs}"], capsys)
        assert f"dataset.source.root={root}, which lies outside of the folder" in text
        assert f"allow={root if '/' in root else f'./{root}'}" in text
    text = refused([*ANALYZE, f"run={theirs}", "allow=./other"], capsys)
    assert "lies outside of the folder" in text
    assert main(["sample", f"run={theirs}", "seeds=0"]) == 0  # which needs no image
    assert main([*ANALYZE, f"run={theirs}", f"allow={root if '/' in root else f'./{root}'}"]) == 0


LATE = """
import torch
from diffusion_lab.timesteps import FixedSampler

class Late(FixedSampler):
    def __init__(self, num_timesteps):
        super().__init__(torch.arange(1, num_timesteps + 1).double())
"""


@pytest.mark.slow
def test_a_run_with_a_class_of_ones_own(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is evaluated, sampled and resumed once the command says whose class that is."""
    mine = in_folder / "mine"
    (mine / "conf" / "sampler").mkdir(parents=True)
    (mine / "late.py").write_text(LATE)
    yaml = "_target_: late.Late\nnum_timesteps: ${schedule.num_timesteps}\n"
    (mine / "conf" / "sampler" / "late.yaml").write_text(yaml)
    os.chdir(mine)
    own = ["--config-dir", "conf"]
    words = ["train", *own, "sampler=late", *SMALL, "hydra.run.dir=run"]
    Child(lambda: exit_with(words), Path("log")).succeed()
    change(Path("run"), lambda record: record.pop("signature"))

    def code(*words: str) -> int:
        return Child(lambda: exit_with(list(words)), Path("log")).wait()

    for words in ([*EVALUATE, "run=run"], ["sample", "run=run", "seeds=0-3"], [*ANALYZE, "run=run"]):
        assert "add allow=late.Late" in refused(words, capsys)
        assert code(*words, "allow=late.Late") == 0, Path("log").read_text()
        assert code(*own, *words) == 2  # the command comes first
        assert code(words[0], *own, *words[1:]) == 0, Path("log").read_text()
    refused(["train", "resume=run", "max_steps=3"], capsys)
    assert code("train", *own, "resume=run", "max_steps=3") == 0, Path("log").read_text()
    assert "sampler._target_=late.Late" not in Path("log").read_text().splitlines()[-1]


def test_a_folder_of_runs_leads_nowhere_else(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its sweep.json may name runs outside of it, and a link may stand where the results would go."""
    shutil.copytree(theirs, "sweep/inside")
    job = {"dir": "../theirs", "overrides": []}
    Path("sweep/sweep.json").write_text(json.dumps({"commands": ["x"], "jobs": [job]}))
    assert main([*ANALYZE, "run=sweep"]) == 0
    facts = json.loads(Path("sweep/analyses/per_timestep/facts.json").read_text())
    assert [model["run"] for model in facts["protocol"]["models"]] == ["inside"]
    shutil.rmtree("sweep/analyses/per_timestep")
    Path("elsewhere").mkdir()
    Path("sweep/analyses/per_timestep").mkdir()
    Path("sweep/analyses/per_timestep/pieces-1").symlink_to(Path("elsewhere").resolve())
    assert "outside of the folder" in refused([*ANALYZE, "run=sweep"], capsys)
    shutil.rmtree("sweep/analyses")
    Path("sweep/analyses").symlink_to(Path("elsewhere").resolve())
    assert "outside of the folder" in refused([*ANALYZE, "run=sweep"], capsys)
    assert not list(Path("elsewhere").iterdir())
