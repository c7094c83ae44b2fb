"""Configurations with one thing wrong.

One key of a valid command line is mutated: another type, sign, NaN, extremes, an unknown or misspelled key, a deleted
key or part, an option that does not exist, broken syntax. Each must either train two steps to finite weights with exit
code 0, or print at most three messages with exit code 2 and leave no run. An error that occurs only in training, a loss
that is not finite or exhausted memory, ends with exit code 1 and one message. The unmutated command lines must train.
"""

from __future__ import annotations

import math
import os
import random
import resource
from pathlib import Path
from typing import Any

import torch

from diffusion_lab.cli.config import compose_train, conf_dir
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import METRICS
from diffusion_lab.training import DiffusionModule
from diffusion_lab.training.checkpoint_io import newest_good
from tests.faults.case import Case, Outcome
from tests.faults.mutate import Mutation, mutation
from tests.faults.runs import GANS, Command
from tests.faults.shared import shared

LIMIT_S = 120.0
MEMORY = 6 << 30  # bytes that a run may allocate
TINY = [
    *("batch_size=8", "max_steps=2", "log_every=1", "snapshot_every=2", "checkpoint_every=1", "dataset.val_images=8"),
    *("metrics=none", "callbacks.generation.grid=4", "threads=1", "trainer.accelerator=cpu"),
    "schedule.num_timesteps=40",
]
DATA = {
    "digits": [],
    "gaussian": ["solver.clip=false", "dataset.source.num_images=64", "dataset.source.num_test_images=16"],
    "photos": ["dataset.source.image_size=16", "dataset.source.num_images=32", "dataset.source.num_test_images=16"],
    "image_folder": ["dataset.source.image_size=16", "dataset.source.root=IMAGES", "dataset.source.cache_dir=cache"],
}
METHODS = sorted((conf_dir() / "method").glob("*.yaml"))
SMALL_UNET = ["network.base_channels=8", "network.channel_multipliers=[1,2]"]
# Settings in addition to the methods, so that every group is covered.
SETTINGS = [
    *(["network=adm_tiny"], ["network=uvit_tiny"], ["task=super_resolution", "network=adm_sr_tiny"]),
    *(["dataset.conditional=true", "dataset.label_dropout=0.1", "solver=guided"], ["solver=heun"], ["solver=ddpm"]),
    *(["optimizer=adamw"], ["logger=tensorboard"], ["precision=bf16-mixed"]),
    *(["accumulate=2"], ["dataset.num_workers=1"]),
]
GROUPS = ("sampler", "weighting", "prediction", "schedule", "annealing", "variance", "preconditioning")


def cases(quick: bool) -> list[Case]:
    """250 mutations, and the command lines without them; quick: 24 mutations of four command lines."""
    bases = base_lines()
    selected = [Case(f"whole {base}", lambda folder, b=base: whole(folder, bases[b])) for base in bases]
    for index in range(24 if quick else 250):
        name = f"mutation {index:03d}"
        selected.append(Case(name, lambda folder, n=name: mutated(folder, bases, n)))
    return selected[-28:] if quick else selected


def base_lines() -> dict[str, list[str]]:
    """Command lines that train, by name: every method, and options of every group, each on one of the data sets."""
    lines: dict[str, list[str]] = {}
    options = [[f"method={path.stem}"] for path in METHODS]
    for group in GROUPS:
        options += [[f"{group}={path.stem}"] for path in sorted((conf_dir() / group).glob("*.yaml"))]
    for index, words in enumerate([*options, *SETTINGS]):
        data = list(DATA)[index % len(DATA)]
        gan = words[0] in GANS
        unet = [] if gan or any(word.startswith("network=") for word in words) else SMALL_UNET
        own = [*DATA[data], *([] if gan else ["solver.steps=4"])]
        if words == ["sampler=from_file"]:
            own.append("sampler.path=NUMBERS")
        if "solver=guided" in words:
            own = [word.replace("solver.", "solver.base.") for word in own]
        lines[f"{data} {' '.join(words)}"] = [f"dataset={data}", *words, *own, *unet, *TINY]
    return lines


def whole(folder: Path, words: list[str]) -> Outcome:
    """A command line without a mutation."""
    outcome = Outcome(counts={"unmutated": 1})
    command = run(folder, words)
    if command.done(outcome, limit=LIMIT_S):
        judge_end(outcome, folder)
    return outcome


def mutated(folder: Path, bases: dict[str, list[str]], name: str) -> Outcome:
    """A command line with one mutation."""
    chance, outcome = random.Random(name), Outcome(counts={"mutated": 1})
    base = chance.choice(list(bases))
    words = ready(folder, bases[base])
    change = mutation(compose_train(words, folder / "work" / "runs" / "run"), chance)
    command = run(folder, [*words, *change.words])
    code = command.end(outcome, LIMIT_S)
    judge(outcome, command, code, folder, change)
    outcome.problems = [f"{base} {' '.join(change.words)}: {text}" for text in outcome.problems]
    outcome.tracebacks = [f"{base} {' '.join(change.words)}: {text}" for text in outcome.tracebacks]
    return outcome


def ready(folder: Path, words: list[str]) -> list[str]:
    """The words with the paths of the folder of images and of the file of probabilities."""
    images, numbers = shared(folder, "images", write_images), shared(folder, "numbers", write_numbers)
    return [word.replace("IMAGES", str(images)).replace("NUMBERS", str(numbers / "p.txt")) for word in words]


def run(folder: Path, words: list[str]) -> Command:
    """Train in `folder`/work for two steps with limited memory."""
    work = folder / "work"
    work.mkdir()
    return Command(["train", *ready(folder, words)], work, limit_run)


def judge(outcome: Outcome, command: Command, code: int | None, folder: Path, change: Mutation) -> None:
    """Check how a command with a mutation ended."""
    output = command.output
    said = [line for line in output.splitlines() if line.startswith("config error:")]
    last = output.strip().splitlines()[-1:]
    if code == 0:
        outcome.counts["trained"] = 1
        judge_end(outcome, folder)
    elif code == 2:
        outcome.counts["refused"] = 1
        outcome.expect(bool(said), f"exit code 2 without a message: {last}")
        outcome.expect(len(said) <= 3, f"one fault, {len(said)} messages")
        outcome.expect(len(set(said)) == len(said), "a message is repeated")
        left = [str(path.relative_to(folder)) for path in folder.rglob("run.json")]
        outcome.expect(not left, f"refused, but left {left}")
    elif code == 1 and "is not finite at" in output:
        outcome.counts["stopped, not finite"] = 1
    elif code == 1 and "memory" in "".join(last):
        outcome.counts["stopped for lack of memory"] = 1
    elif code is not None:
        outcome.problems.append(f"exit code {code}: {''.join(last)[:300]}")
    outside = {path.name for path in folder.iterdir()} - {"work", "case.log"}
    outcome.expect(not outside, f"written outside the working folder: {outside}")


def judge_end(outcome: Outcome, folder: Path) -> None:
    """A successful run must have finite metrics and weights."""
    rows = [row for path in folder.glob(f"work/**/{METRICS}") for row in read_lines(path)]
    values = [value for row in rows for value in row.values() if isinstance(value, float)]
    outcome.expect(all(map(math.isfinite, values)), f"{METRICS} has numbers that are not finite")
    for path in folder.glob("work/**/last.ckpt"):
        newest = newest_good(path.parent)
        weights = newest[1]["state_dict"].values() if newest else []
        outcome.expect(all(bool(torch.isfinite(w).all()) for w in weights), "weights are not finite")


def limit_run() -> None:
    """Patch this process so that a run allocates at most `MEMORY` bytes and trains at most two steps.

    A large number of steps is not a fault, but a negative one means no end and is not limited here.
    """
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    original = DiffusionModule.end_batch

    def enough(self: DiffusionModule, *args: Any) -> None:
        original(self, *args)
        if self.global_step >= 2 and self.trainer.max_steps > 2:
            os._exit(0)

    DiffusionModule.end_batch = enough


def write_images(folder: Path) -> None:
    """Twelve small pictures in two classes."""
    import numpy as np
    from PIL import Image

    random_numbers = np.random.default_rng(0)
    for index in range(12):
        path = folder / f"class{index % 2}" / f"{index:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(random_numbers.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)


def write_numbers(folder: Path) -> None:
    """p_t for 40 timesteps."""
    (folder / "p.txt").write_text("".join(f"{t + 1}\n" for t in range(40)))
