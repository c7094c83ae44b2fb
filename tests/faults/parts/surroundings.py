"""ASCII output, changed data, and FIFOs in place of files.

Every command prints in an encoding that has nothing but ASCII. A run is resumed after its images have changed: exit
code 2 and one sentence. And in a run folder each file in turn is a FIFO, which no command may wait for.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from tests.faults.case import Case, Outcome
from tests.faults.runs import SMALL, Command, run_folder
from tests.faults.shared import shared

RUN = [*SMALL, "max_steps=4", "snapshot_every=4"]
OWN = ["dataset=image_folder", "dataset.source.image_size=16", "dataset.source.root=images"]
OWN += ["dataset.source.cache_dir=cache", "dataset.val_images=4", "batch_size=8"]
READERS = {
    "resume": ["train", "resume=runs/run", "max_steps=6"],
    "sample": ["sample", "run=runs/run", "seeds=0-3"],
    "evaluate": ["evaluate", "run=runs/run", "metrics.num_samples=130"],
    "analyze": ["analyze", "analysis=per_timestep", "run=runs/run"],
    "export": ["export", "run=runs/run", "format=safetensors"],
    "report": ["report", "runs"],
    "show": ["show", "runs/run"],
    "verify": ["verify", "runs/run"],
}
PIPED = ("run.json", "result.json", "metrics.jsonl", "evaluations.jsonl", "timing.jsonl", ".lock", "evaluated.json")
PIPED += ("checkpoints/last.ckpt",)
WAITING = 5.0  # seconds that a command may take longer because of a FIFO


def cases(quick: bool) -> list[Case]:
    """Each command in ASCII, three changes of the data, each file as a FIFO for each command."""
    selected = [Case("ascii, train", ascii_training), Case("ascii, sweep", ascii_sweep)]
    selected += [Case(f"ascii, {name}", lambda f, n=name: ascii_reader(f, n)) for name in READERS]
    selected += [Case(f"data, {how}", lambda f, h=how: changed_data(f, h)) for how in ("added", "deleted", "replaced")]
    for file in PIPED[:3] if quick else PIPED:
        selected.append(Case(f"FIFO, {file}", lambda f, p=file: piped(f, p)))
    return selected


def in_ascii() -> None:
    """Before a command: its output has nothing but ASCII."""
    os.environ["PYTHONIOENCODING"] = "ascii"


def trained(place: Path) -> None:
    """The run that the readers read."""
    outcome = Outcome()
    if not Command(["train", *RUN, "hydra.run.dir=runs/run"], place).done(outcome):
        raise RuntimeError("; ".join(outcome.wrong))


def with_run(folder: Path) -> None:
    """Copy the run to the case's folder."""
    shutil.copytree(shared(folder, "surroundings", trained) / "runs", folder / "runs")


def ascii_training(folder: Path) -> Outcome:
    """A run from its own command."""
    outcome = Outcome(counts={"ASCII": 1})
    Command(["train", *RUN], folder, in_ascii, fresh=True).done(outcome)
    return outcome


def ascii_sweep(folder: Path) -> Outcome:
    """A sweep of two jobs, and its report."""
    outcome = Outcome(counts={"ASCII": 1})
    if Command(["train", "-m", *RUN, "seed=0,1", "name=two"], folder, in_ascii, fresh=True).done(outcome):
        Command(["report", "runs"], folder, in_ascii, fresh=True).done(outcome)
    return outcome


def ascii_reader(folder: Path, name: str) -> Outcome:
    """A command that reads a run."""
    outcome = Outcome(counts={"ASCII": 1})
    with_run(folder)
    command = Command(READERS[name], folder, in_ascii, fresh=True)
    if command.done(outcome):
        outcome.expect(command.output.isascii(), "the output is not ASCII")
    return outcome


def save_images(folder: Path, first: int, last: int) -> None:
    """Images of one grey each."""
    from PIL import Image

    folder.mkdir(exist_ok=True)
    for number in range(first, last):
        Image.new("RGB", (16, 16), (6 * number, 3 * number, 255 - 6 * number)).save(folder / f"{number:03d}.png")


def changed_data(folder: Path, how: str) -> Outcome:
    """Train, change the images, and resume: one sentence, exit code 2, and nothing is written."""
    outcome = Outcome(counts={"changed data": 1})
    save_images(folder / "images", 0, 40)
    if not Command(["train", *RUN, *OWN, "paths.root=runs"], folder).done(outcome):
        return outcome
    if how == "added":
        save_images(folder / "images", 40, 42)
    elif how == "deleted":
        (folder / "images" / "005.png").unlink()
    else:
        shutil.copyfile(folder / "images" / "006.png", folder / "images" / "005.png")
    run = run_folder(folder)
    assert run is not None
    before = files(run)
    command = Command(["train", f"resume={run}", "max_steps=6"], folder)
    if command.done(outcome, 2):
        outcome.expect("config error: " in command.output, f"no sentence: {command.output.strip()[-300:]}")
        outcome.expect(files(run) == before, "the run was changed")
    return outcome


def files(run: Path) -> dict[str, bytes]:
    """The content of the files that are functions of the configuration."""
    return {path.name: path.read_bytes() for path in run.rglob("*") if path.suffix in (".ckpt", ".jsonl")}


def piped(folder: Path, file: str) -> Outcome:
    """Each command with a FIFO in place of the file; it must not take longer than with the file itself, or say why."""
    outcome = Outcome()
    for name, words in READERS.items():
        shutil.rmtree(folder / "runs", ignore_errors=True)
        with_run(folder)
        path = folder / "runs" / "run" / file
        start = time.monotonic()
        Command(words, folder).end(outcome)
        usual = time.monotonic() - start
        shutil.rmtree(folder / "runs")
        with_run(folder)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        command = Command(words, folder)
        code = command.end(outcome, usual + WAITING)
        outcome.expect(code in (0, 1, 2, None), f"{name}: exit code {code}")
        outcome.expect(code != 1 or "fault of diffusion-lab" not in command.output, f"{name}: {command.output[-300:]}")
        outcome.counts["FIFOs"] = outcome.counts.get("FIFOs", 0) + 1
    return outcome
