"""A run that one has trained oneself: its images, its classes and its --config-dir are not asked for again.

One run of two steps is trained on images of one's own, with classes of one's own beside and in a --config-dir that is
not the working folder. Every command that reads a run gets a copy of it in a third folder.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image

import diffusion_lab
from diffusion_lab.cli.errors import InvalidConfig
from diffusion_lab.cli.init_from import recorded_start
from diffusion_lab.cli.main import main
from diffusion_lab.cli.own_run import _targets, with_own
from diffusion_lab.cli.targets import Trust, own_folder
from diffusion_lab.runs.record import write_record
from diffusion_lab.runs.signature import is_own
from diffusion_lab.training import checkpoint_io
from tests.cli.test_own_elsewhere import write
from tests.harness import Child

SMALL = ("scale=smoke", "metrics=none", "max_steps=2", "checkpoint_every=1", "trainer.accelerator=cpu")
EVALUATE = ("evaluate", "metrics.num_samples=3", "solver=ddim", "solver.steps=2")


class Places(NamedTuple):
    """The folder of the run, and that of the user's own files."""

    run: Path
    mine: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """A run of one's own, from a working folder that holds none of one's files."""
    mine, draw = write(tmp_path_factory.mktemp("mine")), np.random.default_rng(0)
    (mine / "images").mkdir()
    for i in range(40):
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(mine / f"images/{i}.png")
    run = tmp_path_factory.mktemp("runs") / "run"
    own = ["--config-dir", os.path.relpath(mine / "conf", run.parent), "sampler=late", "weighting=square"]
    source = [f"dataset.source.root={mine / 'images'}", "dataset.source.image_size=8", "dataset=image_folder"]

    def work() -> None:
        os.chdir(run.parent)
        raise SystemExit(main(["train", *own, *source, *SMALL, "hydra.run.dir=run"]))

    Child(work, run.parent / "log").succeed()
    return Places(run, mine)


@pytest.fixture
def copy(trained: Places, in_folder: Path) -> Path:
    """A copy of the run in another working folder."""
    shutil.copytree(trained.run, in_folder / "copy")
    return Path("copy")


def change(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    record = json.loads((folder / "run.json").read_text())
    edit(record)
    (folder / "run.json").write_text(json.dumps(record))


def resumed(words: list[str], log: Path = Path("log")) -> str:
    child = Child(lambda: exit_with(words), log)
    child.succeed()
    return log.read_text()


def exit_with(words: list[str]) -> None:
    raise SystemExit(main(words))


def sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that is refused, one sentence for each error."""
    capsys.readouterr()
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.err.startswith("config error: ") and "Traceback" not in told.err, told
    return told.err


def test_a_run_of_ones_own_is_read_without_a_word_about_its_parts(
    copy: Path, trained: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sample", f"run={copy}", "seeds=0-2"]) == 0
    assert main([*EVALUATE, f"run={copy}", "metrics.names=[sample_variance]"]) == 0
    assert main(["show", str(copy)]) == 0
    assert main(["export", f"run={copy}"]) == 0
    assert main(["analyze", "analysis=per_timestep", "analysis.images=2", "analysis.every=500", f"run={copy}"]) == 0
    assert diffusion_lab.load_run(copy).step == 2
    assert "late.Late" not in capsys.readouterr().err


def test_it_is_resumed_as_it_was_started_and_stays_ones_own(copy: Path) -> None:
    text = resumed(["train", f"resume={copy}", "max_steps=3"])
    record = json.loads((copy / "run.json").read_text())
    assert "done: step 3" in text and is_own(record) and record["own_parts"]["modules"].keys() == {"late", "square"}


@pytest.mark.slow
def test_another_starts_from_it(copy: Path, trained: Places) -> None:
    source = ["dataset=image_folder", f"dataset.source.root={trained.mine / 'images'}", "dataset.source.image_size=8"]
    words = ["train", f"init_from={copy}", *source, *SMALL, "max_steps=1", "hydra.run.dir=next"]
    assert "starting from copy" in resumed(words)


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "edited": lambda record: record["overrides"].append("+dataset.source.min_size=4"),
    "not signed": lambda record: [record.pop("signature"), record.pop("own_parts")],
    "of somebody else": lambda record: record.update(signature="0" * 64),
}


@pytest.mark.parametrize("case", EDITS)
def test_any_other_run_asks_as_before(
    case: str, copy: Path, trained: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    change(copy, EDITS[case])
    assert f"repeat it: diffusion-lab train resume={copy}" in sentence(["train", f"resume={copy}"], capsys)
    for words in (["sample", "seeds=0-2"], [*EVALUATE, "metrics.names=[sample_variance]"], ["export"]):
        said = sentence([*words, f"run={copy}"], capsys)
        assert "weighting._target_=square.Square, sampler._target_=late.Late must be a class of diffusion_lab" in said
        assert "repeat --config-dir or add 'allow=[square.Square,late.Late]'" in said
    said = sentence(["show", str(copy)], capsys)
    assert all(line.startswith(f"config error: run={copy}: ") for line in said.splitlines()), said
    assert "must be a class of diffusion_lab" in said
    with pytest.raises(InvalidConfig, match=rf"^folder={copy}: .*add allow=\['square.Square', 'late.Late'\]"):
        diffusion_lab.load_run(copy)


@pytest.mark.slow
def test_a_folder_that_is_not_ones_own_stays_so_when_it_is_resumed(copy: Path, trained: Places) -> None:
    change(copy, lambda record: [record.pop("signature"), record.pop("own_parts")])
    own = ["--config-dir", str(trained.mine / "conf"), f"dataset.source.root={trained.mine / 'images'}"]
    resumed(["train", f"resume={copy}", "max_steps=3", *own])
    record = json.loads((copy / "run.json").read_text())
    assert "signature" not in record and "own_parts" not in record


def test_a_record_of_ones_own_beside_another_checkpoint_gives_it_no_power(
    copy: Path, trained: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint is not signed: its configuration must be the record's, and builds nothing."""
    path = copy / "checkpoints" / "last.ckpt"
    content = checkpoint_io.load(path, map_location="cpu")
    content["callbacks"]["RunRecord"]["config"]["sampler"] = {"_target_": "evil.Evil"}
    checkpoint_io.save(content, path)
    Path("evil.py").write_text("open('marker', 'w')\nclass Evil: pass\n")
    assert "the checkpoint must be this run's" in sentence(["sample", f"run={copy}", "seeds=0"], capsys)
    assert Child(lambda: exit_with(["train", f"resume={copy}", "max_steps=3"]), Path("log")).wait() == 2
    assert "must equal the checkpoint's evil.Evil" in Path("log").read_text()
    assert not Path("marker").exists()


def test_what_a_checkpoint_says_of_its_start_is_signed_as_texts_alone() -> None:
    identity = {"config_hash": "a", "step": 1, "weights": "ema 0.9", "digest": "b"}
    evil = {"source": {"_target_": "late.Late"}, "_target_": "late.Late", "not_loaded": None}
    assert recorded_start({"init_from": identity | evil}) == identity | {
        "source": "{'_target_': 'late.Late'}",
        "not_loaded": None,
    }
    assert recorded_start({}) is None


def test_own_parts_that_have_moved_are_one_sentence_with_the_cure(
    copy: Path, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = in_folder / "gone"
    change(copy, lambda record: record.pop("signature"))
    record = json.loads((copy / "run.json").read_text())
    record["own_parts"] = {"config_dirs": [str(gone / "conf")], "modules": {"late": str(gone), "square": str(gone)}}
    write_record(copy, record, own=True)
    assert f"run={copy}: its module late was in {gone} and is not there; give --config-dir" in sentence(
        ["sample", f"run={copy}", "seeds=0"], capsys
    )
    assert f"its --config-dir was {gone / 'conf'}, which is not there" in sentence(["train", f"resume={copy}"], capsys)
    now = write(in_folder / "now") / "conf"
    assert main(["sample", "--config-dir", str(now), f"run={copy}", "seeds=0"]) == 0


def test_own_parts_may_lie_beside_or_in_a_config_dir_that_is_elsewhere(
    copy: Path, trained: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sampler and the weighting lie beside it, the metric and the analysis in it."""
    own = ["--config-dir", str(trained.mine / "conf")]
    assert main([EVALUATE[0], *own, *EVALUATE[1:], f"run={copy}", "metrics.names=[contrast]"]) == 0
    assert '"contrast3"' in (copy / "evaluations.jsonl").read_text()
    assert main(["analyze", *own, "analysis=spread", f"run={copy}"]) == 0
    assert "It is spread." in capsys.readouterr().out
    before = (copy / "evaluations.jsonl").read_text()  # of one's own run the option is known
    assert main([*EVALUATE, str(copy), "metrics.names=[contrast]", "metrics.seed=1"]) == 0
    assert (copy / "evaluations.jsonl").read_text().count("contrast3") == before.count("contrast3") + 1
    assert main(["analyze", "analysis=spread", str(copy), "outdir=again"]) == 0


def test_the_package_itself_is_nobody_s_own_also_in_a_checkout_where_somebody_works(in_folder: Path) -> None:
    """Runs of 0.1.0 that were trained in a checkout name it as the place of a module of the user's own."""
    checkout = Path(diffusion_lab.__file__).parents[1]
    assert own_folder("diffusion_lab.samplers", (checkout,)) is None
    (in_folder / "mine.py").write_text("")
    sys.path.append(str(in_folder))
    try:
        assert own_folder("mine.Late", (in_folder,)) == in_folder  # negative control
    finally:
        sys.path.remove(str(in_folder))
    record = {"config": {}, "own_parts": {"config_dirs": [], "modules": {"diffusion_lab": str(in_folder / "gone")}}}
    write_record(in_folder, record, own=True)
    trust = Trust((in_folder,))
    assert with_own(trust, json.loads((in_folder / "run.json").read_text()), "run=x") == trust


@pytest.mark.parametrize("name", ["${kind}", "mine.Sampler"])
def test_the_classes_of_a_run_are_found_without_resolving_it_unless_a_reference_stands_for_one(name: str) -> None:
    cfg = OmegaConf.create(
        {"kind": "mine.Sampler", "part": {"_target_": name, "inner": "${other}"}, "other": {"_target_": "b.C"}}
    )
    assert sorted(set(_targets(cfg))) == ["b.C", "mine.Sampler"]
