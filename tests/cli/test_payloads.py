"""Run folders and files of weights from anybody, through the commands that load them: each payload gives one sentence
within a few seconds, and nothing elsewhere is read or written.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.cli.resume_checkpoint import check_record
from diffusion_lab.training.checkpoint_io import load, save
from tests.harness import Child
from tests.limited import limited

SMALL = ("scale=smoke", "metrics=none", "network.base_channels=8", "trainer.accelerator=cpu", "max_steps=1")
SECRET = "the private words"
TERA = 2**40
COMMANDS = {
    "sample": ["sample", "run=theirs", "seeds=0"],
    "show": ["show", "theirs"],
    "init_from": ["train", *SMALL, "init_from=theirs", "hydra.run.dir=after"],
    "resume": ["train", "resume=theirs", "max_steps=2"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of one step, as anybody's."""
    folder = tmp_path_factory.mktemp("theirs") / "run"
    words = ["train", *SMALL, f"hydra.run.dir={folder}"]
    Child(lambda: exit_with(words), folder.parent / "log").succeed()
    return folder


def exit_with(words: list[str]) -> None:
    raise SystemExit(main(words))


@pytest.fixture
def theirs(trained: Path, in_folder: Path) -> Path:
    """A copy with one checkpoint, and a private file beside it."""
    shutil.copytree(trained, "theirs")
    for path in Path("theirs/checkpoints").iterdir():
        if path.name != "last.ckpt":
            path.unlink()
    Path("mine").write_text(json.dumps({"config": {"x": SECRET}}))
    return in_folder / "theirs"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused in one sentence, soon; returns the sentence."""
    with limited(5):
        code = main(words)
    told = capsys.readouterr()
    assert code == 2, told
    assert told.err.startswith("config error: ") and told.err.count("\n") == 1, told.err
    assert "Traceback" not in told.err + told.out and SECRET not in told.err + told.out
    assert Path("mine").read_text() == json.dumps({"config": {"x": SECRET}})
    return told.err


def test_a_sentence_names_no_file_outside_as_a_cure(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = load(theirs / "checkpoints" / "last.ckpt")
    lines = content["callbacks"]["RunRecord"]["lines"] | {"../mine": 5, "/etc/passwd": 7}
    save(content | {"callbacks": content["callbacks"] | {"RunRecord": {"lines": lines}}}, theirs / "x")
    check_record(theirs, Path("last.ckpt"), load(theirs / "x"))
    (theirs / "metrics.jsonl").unlink()
    with pytest.raises(ConfigError, match="metrics.jsonl: must hold the"):
        check_record(theirs, Path("last.ckpt"), load(theirs / "x"))


def free(path: Path) -> Path:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return path


def zeros(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(TERA)


KINDS: dict[str, Callable[[Path], object]] = {
    "a link": lambda path: path.symlink_to(Path("mine").resolve()),
    "a FIFO": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a circle": lambda path: path.symlink_to(path),
    "a terabyte": zeros,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["run.json", "checkpoints/last.ckpt"])
def test_no_regular_file_of_the_folder(name: str, kind: str, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    KINDS[kind](free(theirs / name))
    for command in COMMANDS if name == "run.json" else ("sample", "resume"):
        refused(COMMANDS[command], capsys)


@pytest.mark.parametrize("kind", ["a link", "a FIFO"])
def test_no_folder_of_the_run(kind: str, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    KINDS[kind](free(theirs / "checkpoints"))
    for words in COMMANDS.values():
        refused(words, capsys)


def edited(edit: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A change of the checkpoint's content, with a checksum that fits."""

    def change(path: Path) -> None:
        content = load(path)
        edit(content)
        save(content, path)

    return change


def deep(depth: int) -> list[Any]:
    node: list[Any] = []
    for _ in range(depth):
        node = [node]
    return node


CHECKPOINTS: dict[str, Callable[[Path], None]] = {
    "a list as the callbacks": edited(lambda content: content.update(callbacks=[1])),
    "a text as a callback": edited(lambda content: content["callbacks"].update(EMA="x")),
    "a list as an average": edited(
        lambda content: content["callbacks"].update(EMA=dict.fromkeys(content["callbacks"]["EMA"], [1]))
    ),
    "no weights": edited(lambda content: content.update(state_dict=5)),
    "texts as weights": edited(lambda content: content.update(state_dict=dict.fromkeys(content["state_dict"], "x"))),
    "numbers as names": edited(lambda content: content.update(state_dict={5: torch.zeros(1)})),
    "a text as the step": edited(lambda content: content.update(global_step="x")),
    "a negative step": edited(lambda content: content.update(global_step=-5)),
    "a flag as the step": edited(lambda content: content.update(global_step=True)),
    "a text as the epoch": edited(lambda content: content.update(epoch="x")),
    "a number as the version": edited(lambda content: content.update({"pytorch-lightning_version": 5})),
    "a text as a loop": edited(lambda content: content["loops"].update(fit_loop="x")),
    "texts as counts": edited(lambda content: progress(content).update(dict.fromkeys(progress(content), "x"))),
    "negative counts": edited(lambda content: progress(content).update(ready=-5)),
    "a number as what is owed": edited(lambda content: content["callbacks"]["RunRecord"].update(owed=5)),
    "numbers as what is owed": edited(lambda content: content["callbacks"]["RunRecord"].update(owed=[5])),
    "a text as lines": edited(lambda content: content["callbacks"]["RunRecord"].update(lines="x")),
    "texts as lengths": edited(
        lambda content: content["callbacks"]["RunRecord"]["lines"].update({"metrics.jsonl": "x"})
    ),
    "a list as the hash": edited(lambda content: content["callbacks"]["RunRecord"].update(config_hash=[])),
    "a text as a time": edited(lambda content: content["callbacks"]["Progress"].update(seconds="x")),
    "no number as a time": edited(lambda content: content["callbacks"]["Progress"].update(evaluating=float("nan"))),
    "a list as tables": edited(lambda content: content["callbacks"]["TimestepLog"].update(tables=[1])),
    "a list as averages": edited(lambda content: content["callbacks"].update(EMA={"0.9999": {"x": [1]}})),
    "a number as an optimizer": edited(lambda content: content.update(optimizer_states=[5])),
    "a text as schedulers": edited(lambda content: content.update(lr_schedulers="x")),
    "numbers as names of infinities": edited(lambda content: content.update(may_be_infinite=[5])),
    "no loops": edited(lambda content: content.update(loops={})),
    "no counts": edited(lambda content: content["loops"]["fit_loop"].clear()),
    "weights of another shape": edited(
        lambda content: content.update(state_dict=dict.fromkeys(content["state_dict"], torch.zeros(3, 5, 7)))
    ),
    "tables of another shape": edited(
        lambda content: content["callbacks"]["TimestepLog"].update(tables=torch.zeros(3))
    ),
    "averages of another shape": edited(
        lambda content: content["callbacks"]["EMA"]["0.9999"].update(
            {key: torch.zeros(3, 1) for key in content["callbacks"]["EMA"]["0.9999"]}
        )
    ),
    "moments of another shape": edited(lambda content: optimizer(content)["state"][0].update(exp_avg=torch.zeros(1))),
    "a text as a moment": edited(lambda content: optimizer(content)["state"][0].update(exp_avg="x")),
    "a text as the learning rate": edited(lambda content: optimizer(content)["param_groups"][0].update(lr="x")),
    "a list as a group": edited(lambda content: optimizer(content).update(param_groups=[[]])),
    "no groups": edited(lambda content: optimizer(content).update(param_groups=[])),
    "no state of the optimizer": edited(lambda content: content.update(optimizer_states={})),
    "a record that is none": edited(lambda content: content["callbacks"].update(RunRecord={"config": [1]})),
    "a deep record": edited(lambda content: content["callbacks"]["RunRecord"]["config"].update(x=deep(300))),
    "one number for many": edited(
        lambda content: content.update(state_dict={key: torch.zeros(1).expand(TERA) for key in content["state_dict"]})
    ),
}


def progress(content: dict[str, Any]) -> dict[str, int]:
    return content["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]


def optimizer(content: dict[str, Any]) -> dict[str, Any]:
    return content["optimizer_states"][0]


OF_TRAINING = (
    *("no loops", "no counts", "tables of another shape", "no groups"),
    *("moments of another shape", "a text as a moment", "a text as the learning rate"),
)
UNUSED = {  # what the command has no use for
    *((command, name) for command in ("sample", "init_from") for name in OF_TRAINING),
    ("resume", "a list as an average"),  # of another name than its own
    ("sample", "no state of the optimizer"),
    ("init_from", "no state of the optimizer"),
    ("init_from", "weights of another shape"),  # it starts from the average
}


OF_THE_FILE = (  # each command is told of these by the function that reads the file
    *("a list as the callbacks", "a text as a callback", "no weights", "texts as weights", "numbers as names"),
    *("a text as the step", "a negative step", "a flag as the step", "a text as the epoch", "a number as the version"),
    *("a text as a loop", "texts as counts", "negative counts", "a number as what is owed", "numbers as what is owed"),
    *("a text as lines", "texts as lengths", "a list as the hash", "a text as a time", "no number as a time"),
    *("a list as tables", "a list as averages", "a number as an optimizer", "a text as schedulers"),
    *("numbers as names of infinities", "a list as a group", "a record that is none", "a deep record"),
)
BY_ALL = ("no weights", "a text as the epoch", "a record that is none")


def uses() -> Iterator[Any]:
    """Each command with each checkpoint that it has a use for; of `OF_THE_FILE` the first command is enough."""
    for name, command in itertools.product(CHECKPOINTS, ("sample", "init_from", "resume")):
        if (command, name) not in UNUSED:
            second = command != "sample" and name in OF_THE_FILE and name not in BY_ALL
            yield pytest.param(name, command, marks=[pytest.mark.exhaustive] * second, id=f"{name}-{command}")


@pytest.mark.parametrize(("name", "command"), [*uses()])
def test_a_checkpoint_with_other_entries(
    name: str, command: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    CHECKPOINTS[name](theirs / "checkpoints" / "last.ckpt")
    said = refused(COMMANDS[command], capsys)
    assert name not in OF_THE_FILE or "is nothing that a run writes" in said


ANALYZE = ["analyze", "analysis=per_timestep", "analysis.images=2", "analysis.every=500", "run=theirs"]
IN_THE_WAY = {  # of a file that a command writes: its place, and the command
    "the grid": ("theirs/generated/step-00000001/grid.png", COMMANDS["sample"]),
    "a sample": ("theirs/generated/step-00000001/images/000000.png", COMMANDS["sample"]),
    "a figure": ("theirs/analyses/per_timestep/figure.svg", ANALYZE),
    "facts": ("theirs/analyses/per_timestep/facts.json", ANALYZE),
    "a card": ("theirs/export/safetensors/README.md", ["export", "run=theirs"]),
    "weights": ("theirs/export/safetensors/config.json", ["export", "run=theirs"]),
    "evaluations": ("theirs/evaluations.jsonl", ["evaluate", "run=theirs", "metrics.num_samples=300"]),
    "samples of a run": ("theirs/samples/step-00000002.png", COMMANDS["resume"]),
    "a checkpoint": ("theirs/checkpoints/step-00000002.ckpt", COMMANDS["resume"]),
    "a log": ("theirs/timing.jsonl", COMMANDS["resume"]),
    "a result": ("theirs/result.json", COMMANDS["resume"]),
    "a lock": ("after/.lock", COMMANDS["init_from"]),
    "a page": ("theirs/report.html", ["report", "theirs"]),
    "a table": ("table.md", ["report", "theirs", "--table", "table.md"]),
    "a comparison": ("page.html", ["compare", "theirs", "other", "--out", "page.html"]),
    "a distribution": ("p.txt", ["show", "theirs", "--write", "p.txt"]),
}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_a_folder_lies_where_a_file_is_written(name: str, theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, words = IN_THE_WAY[name]
    free(Path(place)) if Path(place).exists() else None
    Path(place, "mine").mkdir(parents=True)
    if "other" in words:
        shutil.copytree(theirs, "other")
    text = refused(words, capsys)
    assert place.rpartition("/")[2] in text and Path(place, "mine").is_dir()
    assert not [path for path in theirs.rglob(".*") if path.name not in (".lock", ".hydra")]


@pytest.mark.parametrize("name", [".lock", "evaluations.jsonl"])
def test_a_file_that_is_also_elsewhere_is_not_written(
    name: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    free(theirs / name) if (theirs / name).exists() else None
    os.link("mine", theirs / name)
    words = COMMANDS["resume"] if name == ".lock" else ["evaluate", "run=theirs", "metrics.num_samples=300"]
    assert "hard link" in refused(words, capsys)


EMPTY = {
    "a folder": ["report", ""],
    "the second folder": ["compare", "theirs", ""],
    "a --config-dir": ["train", *SMALL, "--config-dir="],
    "the word after --config-dir": ["train", *SMALL, "--config-dir", ""],
    "a resumed run": ["train", "resume=''"],
    "seeds of a table": ["reproduce", "adaptive_beta/table1", "--seeds="],
    "a file to write": ["show", "sampler=uniform", "--write="],
    "a pilot": ["plan", "dataset=digits", "pilot="],
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_word_that_is_empty_is_not_the_working_folder(
    name: str, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "empty" in refused(EMPTY[name], capsys)
    assert not Path("report.html").exists()


def npz(shape: str) -> bytes:
    words = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in ("timesteps.npy", "mean.npy"):
            file.writestr(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words)) + words)
    return buffer.getvalue()


NAMED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "init_from=theirs.pt": ("theirs.pt", os.mkfifo),
    "init_from=theirs.safetensors": ("theirs.safetensors", os.mkfifo),
    "init_from=zeros.pt": ("zeros.pt", zeros),
    "sampler=equal_loss_slots sampler.loss_curve=theirs.json": ("theirs.json", os.mkfifo),
    "sampler=equal_loss_slots sampler.loss_curve=theirs.npz": ("theirs.npz", os.mkfifo),
    "sampler=equal_loss_slots sampler.loss_curve=metrics.jsonl": ("metrics.jsonl", os.mkfifo),
    "sampler=equal_loss_slots sampler.loss_curve=many.npz": (
        "many.npz",
        lambda p: p.write_bytes(npz("(962072674304,)")),
    ),
    "sampler=equal_loss_slots sampler.loss_curve=deep.json": ("deep.json", lambda path: path.write_text("[" * 200_000)),
    "sampler=equal_loss_slots sampler.loss_curve=large.json": (
        "large.json",
        lambda path: path.write_text(f"[1{'0' * 400}]"),
    ),
    "sampler=equal_loss_slots sampler.loss_curve=zeros.json": ("zeros.json", zeros),
    "sampler=from_file sampler.path=theirs.txt": ("theirs.txt", os.mkfifo),
}


@pytest.mark.parametrize("words", NAMED)
def test_a_file_that_is_named(words: str, in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, make = NAMED[words]
    Path("mine").write_text(json.dumps({"config": {"x": SECRET}}))
    make(Path(name))
    refused(["train", *SMALL, *words.split(), "hydra.run.dir=run"], capsys)
