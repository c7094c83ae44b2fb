"""What a sentence or a line tells to type can be typed as it stands, and is about what was meant."""

from __future__ import annotations

import json
import logging
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from diffusion_lab.cli.checks.settings import check_settings
from diffusion_lab.cli.checks.typed_keys import with_keys_to_type
from diffusion_lab.cli.config import plain, run_name
from diffusion_lab.cli.dry_run import print_rows
from diffusion_lab.cli.main import main
from diffusion_lab.cli.outcome import nothing_to_do, outcome
from diffusion_lab.cli.same_run import shorter_run
from diffusion_lab.printable import logged_once
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.names import SWEEP
from diffusion_lab.runs.record import read_record
from hydra_plugins.diffusion_lab_launcher._job_progress import job_progress


def test_a_cure_names_the_whole_key_of_an_argument_that_stands_beside_the_wrong_one(composed) -> None:
    cfg = composed("dataset=image_folder")
    said = (
        "dataset.source.root=pets must hold images of 64 pixels. Use image_size=40, or min_size=40, or set on_bad=skip"
    )
    whole = "Use dataset.source.image_size=40, or dataset.source.min_size=40, or set dataset.source.on_bad=skip"
    assert with_keys_to_type(cfg, said).endswith(whole) and with_keys_to_type(
        cfg, with_keys_to_type(cfg, said)
    ) == with_keys_to_type(cfg, said)
    said = "dataset.source.root=pets must have labels; set conditional=false, batch_size=8 or --flag=x or a.root=y"
    whole = (
        "; set dataset.conditional=false, batch_size=8 or --flag=x or a.root=y"  # of the part around it; the run's own
    )
    assert with_keys_to_type(cfg, said).endswith(whole)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["dataset=image_folder", "image_size=40"], "(did you mean 'dataset.source.image_size'?)"),
        (["dataset=image_folder", "on_bad=skip"], "(did you mean 'dataset.source.on_bad'?)"),
    ],
)
def test_a_bare_argument_is_taken_for_that_of_its_part(words: list[str], hint: str, capsys, in_folder: Path) -> None:
    assert main(["train", *words]) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "cure"),
    [("3k", "write max_steps=3000"), ("2M", "write max_steps=2000000"), ("many", "use a number such as 2000")],
)
def test_a_number_that_is_proposed_is_the_one_meant_or_called_an_example(composed, value: str, cure: str) -> None:
    (error,) = check_settings(composed(f"max_steps={value}"))
    assert str(error).endswith(f"; {cure}")


def test_the_runs_in_a_sentence_are_counted(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=r"runs there: .*/a, .*/b, .*/c and 2 more$"):
        read_record(tmp_path / "nothing", "run")


def test_a_part_is_called_as_it_was_chosen(composed) -> None:
    cfg = composed("solver=guided", "coupling=minibatch_ot")
    said = "solver=Guided must have a model that was trained with labels, beside coupling=MinibatchOT or x=Guided"
    assert with_keys_to_type(cfg, said) == said.replace("r=Guided", "r=guided").replace("=MinibatchOT", "=minibatch_ot")
    said = "callbacks.annealing=null must be an AnnealingCallback; leave it in, or use annealing=constant"
    assert with_keys_to_type(cfg, said) == said  # not the callback
    assert with_keys_to_type(cfg, "solver=Other must fit") == "solver=Other must fit"


def _run(folder: Path, step: int, max_steps: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"config": {"max_steps": max_steps}}))
    (folder / "result.json").write_text(json.dumps({"status": "done", "step": step, "metrics": {}, "seconds": 1.0}))
    return folder


def test_a_metric_of_an_earlier_step_is_said_to_be_of_that_step(tmp_path: Path) -> None:
    folder = _run(tmp_path / "run", 30, 30)
    line = {"step": 20, "name": "sample_variance", "value": 0.5}
    (folder / "evaluations.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"step": k, "val/loss": k / 10}) + "\n" for k in (20, 30)))
    lines = outcome(read_run(folder))
    assert "  sample_variance  0.5  (at step 20)" in lines
    assert "  val/loss         3  (+1 since step 20)" in lines


def test_a_run_that_is_done_says_how_it_is_given_more_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = nothing_to_do(tmp_path / "runs" / "a b", 20)
    assert text.startswith("nothing to do: runs/a b is done at step 20; for more steps, ")
    assert shlex.split(text.rpartition(": ")[2]) == ["diffusion-lab", "train", "resume='runs/a b'", "max_steps=40"]


def test_a_run_of_fewer_steps_beside_a_new_one_is_found(composed, tmp_path: Path) -> None:
    short, longer, other = (
        composed(*words) for words in (["max_steps=20"], ["max_steps=30"], ["max_steps=30", "seed=1"])
    )
    place, new = tmp_path / f"{run_name(short)}-0123abcd", tmp_path / f"{run_name(longer)}-new"
    place.mkdir()
    (place / "run.json").write_text(json.dumps({"config": plain(short)}))
    assert shorter_run(longer, new) == place
    assert shorter_run(short, new) is shorter_run(other, new) is None
    (tmp_path / SWEEP).write_text("{}")  # whose jobs may differ in it on purpose
    assert shorter_run(longer, new) is None


def test_a_run_is_called_as_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(_run(tmp_path / "kept", 3, 3))
    assert read_run(Path(".")).name == "kept"


def test_jobs_can_be_told_apart_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"digits-logit_normal-with-a-long-name-s{seed}-0123abcd" for seed in range(2)]
    head = ("job", "parameters", "images/s", "memory", "time", "checkpoints", "basis")
    rows = [(name, "1,234,567", "123.4", "1.23 GB", "2 h 05 min", "34.5 MB", "measured here") for name in names]
    print_rows(Console(force_terminal=True, width=80, no_color=True), head, rows)
    text = capsys.readouterr().out
    assert "…" not in text
    column = "".join(line.split("│")[1].strip() for line in text.splitlines() if line.count("│") > 2)
    assert column == "".join(names)


def test_a_line_about_the_data_is_logged_once_for_all_jobs() -> None:
    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    lines: list[str] = []
    handler, log = Kept(), logging.getLogger("diffusion_lab.data.test_cures")
    logging.getLogger().addHandler(handler)
    try:
        with logged_once():
            for text in ("40 images", "40 images", "others", "40 images"):
                log.warning(text)
        log.warning("40 images")
    finally:
        logging.getLogger().removeHandler(handler)
    assert lines == ["40 images", "others", "40 images"]


def test_the_table_of_a_sweep_shows_no_step_before_that_of_its_metrics(tmp_path: Path) -> None:
    (tmp_path / "timing.jsonl").write_text(json.dumps({"step": 7}) + "\n")
    (tmp_path / "evaluations.jsonl").write_text(json.dumps({"step": 15, "name": "fid", "value": 2.0}) + "\n")
    job: Any = SimpleNamespace(folder=tmp_path, config={"max_steps": 30})
    assert job_progress(job, 0.0)[:2] == (15, 30)


def test_a_data_set_that_must_be_brought_is_tried_with_its_place_and_lists_its_keys(capsys) -> None:
    assert main(["list", "dataset=image_folder", "dataset=celeba64", "dataset=digits"]) == 0
    text = capsys.readouterr().out
    for name in ("image_folder", "celeba64"):
        assert f"diffusion-lab train dataset={name} dataset.source.root=PLACE\n" in text
    assert "diffusion-lab train dataset=digits\n" in text
    assert "source.image_size=32" in text and "source.on_bad=error" in text
