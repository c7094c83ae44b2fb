"""Bad command lines through the command itself: exit code 2, one sentence, no traceback, and nothing left behind."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffusion_lab.cli.main import main
from tests.harness import Child

SLOW = pytest.mark.slow
TINY = ("scale=smoke", "max_steps=2", "network.base_channels=8", "trainer.accelerator=cpu", "~callbacks.generation")

# what is typed; what the sentence starts with; a word that is in it
TRAIN = [
    # a place that cannot be a folder
    (["paths.root=afile"], "paths.root=afile must be a folder", "use another"),
    (["paths.root=/proc/x"], "paths.root=/proc/x must be a folder", "use another"),
    (["hydra.run.dir=afile"], "hydra.run.dir=afile must be a folder", "use another"),
    (["-m", "seed=0,1", "paths.root=afile"], "paths.root=afile must be a folder", "use another"),
    (["-m", "seed=0,1", "hydra.sweep.dir=afile"], "hydra.sweep.dir=afile must be a folder", "use another"),
    (["-m", "seed=0,1", f"name={'a' * 300}"], f"name={'a' * 300} must be a folder", "use another"),
    (["name=../../evil"], "name=../../evil must be the name of one folder", "paths.root"),
    (["-m", "seed=0,1", "name=.."], "name=.. must be the name of one folder", "paths.root"),
    # an argument of another class, or none
    (["callbacks.generation.solver=2"], "callbacks.generation.solver=2 must be of the class Solver", "leave it out"),
    (["callbacks.generation.evaluation=abc"], "callbacks.generation.evaluation=abc must be", "class Evaluation"),
    (["callbacks.timestep_sampling.sampler=5"], "callbacks.timestep_sampling.sampler=5 must be", "TimestepSampler"),
    (["callbacks.annealing.annealing=null"], "callbacks.annealing.annealing=null must be", "class Annealing"),
    (["dataset.source=null"], "dataset.source=null must be of the class ImageSource", "leave it out"),
    (["sampler=stratified", "sampler.base=3"], "sampler.base=3 must be of the class TimestepSampler", "leave"),
    # a part that Hydra cannot choose
    (["experiment=methods_fashion_mnist", "method=null"], "method=null must be one of biggan,", "the experiment"),
    (["trainer=null"], "trainer=null must be one of cpu, ddp,", "group=option"),
    (["=5"], "=5 must be the name of an option", "group=option"),
    # what would be another run than its record says
    (["objective=metrics/fd1k_digit"], "objective=metrics/fd1k_digit must be one of val/loss,", "did you mean"),
    (
        ["objective=val/loss", "~callbacks.validation", "~callbacks.generation"],
        "objective=val/loss must be null",
        "measures nothing",
    ),
    (["trainer.max_steps=-1"], "trainer.max_steps=-1 must be 2000, as max_steps is", "set max_steps"),
    (["~trainer.max_steps"], "~trainer.max_steps must not be deleted", "max_steps=2000"),
    (["trainer.max_epochs=5"], "trainer.max_epochs=5 must be -1", "set max_steps"),
    (
        ["trainer.accumulate_grad_batches=0"],
        "trainer.accumulate_grad_batches=0 must be 1, as accumulate is",
        "set accumulate",
    ),
    (
        ["trainer.gradient_clip_val=-1"],
        "trainer.gradient_clip_val=-1 must be 1.0, as gradient_clip is",
        "set gradient_clip",
    ),
    (["trainer.precision=8"], "trainer.precision=8 must be 32-true, as precision is", "set precision"),
    (["dataset.batch_size=8"], "dataset.batch_size=8 must be 64, as batch_size is", "set batch_size"),
    (["callbacks.checkpoint.directory=x"], "callbacks.checkpoint.directory=x must be the run's own", "paths.root"),
    (["callbacks.heartbeat.directory=x"], "callbacks.heartbeat.directory=x must be the run's own", "${paths.run_dir}"),
    (["logger.jsonl.directory=x"], "logger.jsonl.directory=x must be the run's own folder", "paths.root"),
    (["logger=tensorboard", "logger.tensorboard.directory=x"], "logger.tensorboard.directory=x must be", "paths.root"),
    (["trainer.default_root_dir=x"], "trainer.default_root_dir=x must be the run's own folder", "paths.root"),
    (["trainer.default_root_dir=null"], "trainer.default_root_dir=null must be the run's own folder", "paths.root"),
    (["~trainer.default_root_dir"], "~trainer.default_root_dir must not be deleted", "leave it out"),
    (["paths.run_dir=x"], "paths.run_dir=x must be left out", "hydra.run.dir"),
    (["-m", "seed=0,1", "paths.run_dir=x"], "paths.run_dir=x must be left out", "hydra.run.dir"),
    # what the run passes itself
    (["+trainer.logger=false"], "trainer.logger must be left out", "logger=..."),
    (["+trainer.callbacks=[]"], "trainer.callbacks must be left out", "+callbacks.NAME"),
    (["+trainer.plugins=[]"], "trainer.plugins must be left out", "precision=..."),
    (["~optimizer.lr"], "~optimizer.lr must not be deleted", "own default 0.001; write optimizer.lr=0.001"),
    (["~network.base_channels"], "~network.base_channels must not be deleted", "own default 128"),
    # told once, with the right advice
    (["seed=-1"], "seed=-1 must be an integer >= 0; use e.g. seed=0", ""),
    (["seed=1e5"], "seed=100000.0 must be an integer >= 0; write seed=100000", ""),
    (["seed=007"], "seed=007 must be an integer >= 0; write seed=7", ""),
    (["seed=[1,2]"], "seed=[1, 2] must be an integer >= 0; for several runs use -m seed=1,2", ""),
    (["seed=99999999999999999999"], "seed=99999999999999999999 must be", "<= 9223372036854775807"),
    (["max_steps=99999999999999999999"], "max_steps=99999999999999999999 must be", "<= 1000000000000"),
    (["schedule.num_timesteps=0"], "schedule.num_timesteps=0 must be an integer in [1, 1000000]", "use 1000"),
    (["schedule.num_timesteps=100000000"], "schedule.num_timesteps=100000000 must be an integer in", "use 1000"),
    (["callbacks.validation.repeats=99999"], "callbacks.validation.repeats=99999 must be an integer in", "use 1,"),
    (["resume=good", "schedule.num_timesteps=500"], "schedule.num_timesteps=500 must equal the checkpoint's 1000", ""),
    (["resume=good", "batch_size=8"], "batch_size=8 must equal the checkpoint's 16", "not "),
    (["resume=good", "sampler=stratified"], "sampler._target_=diffusion_lab.timesteps.Stratified must equal", ""),
    (
        ["paths.root=r\u00fcns"],
        "paths.root=r\u00fcns must have its value in quotes, because of '\u00fc'",
        "paths.root='r",
    ),
    (["optimizer=[1"], "optimizer=[1: it cannot be read", "write key=value"),
    # machines
    (["trainer.devices=abc"], "trainer.devices=abc must be", "use trainer.devices=1"),
    (["trainer.devices=[0,1]", "trainer.accelerator=cpu"], "trainer.devices=[0, 1] must be a number of", "processes"),
    (["trainer.num_nodes=2"], "trainer.num_nodes=2 must be started on each node", "num_nodes=1"),
    # data
    (["dataset=cifar10", "dataset.source.root=data", "metrics=none"], "dataset.source.root=data must hold", "damaged"),
    (
        ["dataset=image_folder", "dataset.source.root=photos", "dataset.source.class_folders=true", "metrics=none"],
        "dataset.source.root=photos must",
        "c has",
    ),
]
QUICK = {0, 2, 3, 6, 8, 14, 17, 19, 27, 30, 36, 40, 44}
OTHERS = [
    (["evaluate", "run=good", "device=gpux"], "device=gpux must be auto, cpu,", "use device=auto"),
    (["sample", "run=good", "device=cpu:99"], "device=cpu:99 must be auto, cpu,", "use device=auto"),
    (["evaluate", "run=good", "device=null"], "device is missing", "use device=auto"),
    (["encode", "dataset=digits", "device=gpux"], "device=gpux must be auto, cpu,", "use device=auto"),
    (["evaluate", "run=broken"], "run=broken must hold an undamaged run.json", "restore a copy"),
    (["sample", "run=broken"], "run=broken must hold an undamaged run.json", "restore a copy"),
    (["train", "resume=broken"], "resume=broken", "damaged"),
    (["evaluate", "run=lacking"], "run=lacking must hold an undamaged run.json (config must be", "restore"),
    (["sample", "run=lacking"], "run=lacking must hold an undamaged run.json (config must be", "restore"),
    (["evaluate", "run=[1,2]"], "run=[1, 2] must be text", "use a run folder"),
    (["evaluate", "run=5"], "run=5 must be text", "use a run folder"),
    (["evaluate", "run="], "run='' must be text", "use a run folder"),
    (["evaluate", "run=good", "checkpoint=5"], "checkpoint=5 must be text", "checkpoint=last"),
    (["evaluate", "run=good", "checkpoint=null"], "checkpoint=null must be text", "checkpoint=last"),
    (["evaluate", "run=good", "metrics=null"], "metrics=null must be one of default, none, paper", "group=option"),
    (["encode", "dataset=5"], "dataset=5 must be one of", "image_folder"),
    (["encode", "dataset=digits", "outdir=5"], "outdir=5 must be text", "outdir=data/latents"),
    (["sample", "run=good", "seeds=0-99999999999"], "seeds=0-99999999999 must be at most 1,000,000", "several"),
    (["sample", "run=good", f"seeds={10**22}"], f"seeds={10**22} must be numbers up to", "0-63"),
    (["sample", "run=good", "seed=-1"], "seed=-1 must be an integer >= 0", "use seed=0"),
    (["sample", "run=good", "seed=null"], "seed is missing", "use seed=0"),
    (["sample", "run=good", "batch_size=0"], "batch_size=0 must be an integer >= 1", "use 64"),
    (["sample", "run=good", "batch_size=abc"], "batch_size=abc must be an integer >= 1", "such as 64"),
    (["sample", "run=good", "outdir=afile"], "outdir=afile must be a folder that can be written to", "use another"),
    (["sample", "run=good", "outdir=/proc/x"], "outdir=/proc/x must be a folder that can be written", "use another"),
    (["sample", "run=good", "outdir=5"], "outdir=5 must be text or null", "give a folder"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run `good` and copies of it that are damaged."""
    folder = tmp_path_factory.mktemp("area")

    def work() -> None:
        import os

        os.chdir(folder)
        raise SystemExit(main(["train", *TINY, "hydra.run.dir=good"]))

    Child(work, folder / "log").succeed()
    for name in ("broken", "lacking"):
        shutil.copytree(folder / "good", folder / name)
    (folder / "broken" / "run.json").write_text('{"config": {')
    record = json.loads((folder / "good" / "run.json").read_text())
    (folder / "lacking" / "run.json").write_text(json.dumps({k: v for k, v in record.items() if k != "config"}))
    (folder / "afile").write_text("")
    (folder / "data").mkdir()
    (folder / "data" / "cifar-10-python.tar.gz").write_bytes(bytes([31, 139, 8, 0]) + b"x" * 100)
    for name in "abc":
        (folder / "photos" / name).mkdir(parents=True)
        for i in range(0 if name == "c" else 20):
            pixels = np.full((32, 32, 3), i, np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name / f"{i}.png")
    return folder


def _refused(folder: Path, words: list[str], start: str, word: str, capsys: pytest.CaptureFixture) -> None:
    before = sorted(folder.rglob("*"))
    assert main(words) == 2
    said = capsys.readouterr().err.strip()
    assert said.count("\n") == 0 and "Traceback" not in said, said
    assert said.startswith(f"config error: {start}") and word in said, said
    assert sorted(folder.rglob("*")) == before


TRAIN_CASES = [
    pytest.param(*case, marks=() if i in QUICK else SLOW, id=re.sub(r"\W+", "-", " ".join(case[0]))[:60])
    for i, case in enumerate(TRAIN)
]


@pytest.mark.parametrize(("words", "start", "word"), TRAIN_CASES)
def test_a_bad_training_is_refused(trained, in_folder, monkeypatch, capsys, words, start, word) -> None:
    monkeypatch.chdir(trained)
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_folder))  # where looks at image files are kept
    _refused(trained, ["train", *words], start, word, capsys)


@pytest.mark.parametrize(("words", "start", "word"), OTHERS, ids=lambda value: None)
def test_a_bad_use_of_a_run_is_refused(trained, in_folder, monkeypatch, capsys, words, start, word) -> None:
    monkeypatch.chdir(trained)
    _refused(trained, words, start, word, capsys)


def test_a_result_that_nobody_can_read_is_written_again(trained, in_folder, monkeypatch, capsys) -> None:
    monkeypatch.chdir(trained)
    whole = json.loads((trained / "good" / "result.json").read_text())
    (trained / "good" / "result.json").write_text('{"status": "do')
    assert main(["train", *TINY, "hydra.run.dir=good"]) == 0, capsys.readouterr().err
    again = json.loads((trained / "good" / "result.json").read_text())
    assert (again["status"], again["step"], again["metrics"]) == ("done", 2, whole["metrics"])
