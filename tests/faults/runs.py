"""Training runs through the command line, in forked processes, and their results."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.main import main
from diffusion_lab.cli.processes import end_with_parent
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import EVALUATIONS, METRICS
from diffusion_lab.training import AdversarialModule, DiffusionModule, RunModule
from tests.faults.case import Outcome
from tests.faults.command import SEEN
from tests.faults.kept import ROOT
from tests.harness import TINY, Child, differences, final_state

Before = Callable[[], object]

STEPS = 24
# A run that takes seconds, logs every step, saves every third, and validates and samples every eighth.
SMALL = [
    *(word for word in TINY if word != "~callbacks.generation"),
    *("max_steps=24", "snapshot_every=8", "dataset.val_images=32", "threads=1"),
    *("metrics=none", "solver.steps=4", "callbacks.generation.grid=4"),
]
GANS = {f"method={path.stem}" for path in (conf_dir() / "method").glob("*.yaml") if "/task: gan" in path.read_text()}
# Of them, what a GAN does not have: it has networks of its own, and neither timesteps nor solver nor averages.
OF_DIFFUSION = (
    *("base=", "network", "schedule.", "solver."),
    *("callbacks.ema.", "callbacks.validation.", "callbacks.timestep_log."),
)
EVALUATING = ["metrics=default", "metrics_every=8", "metrics.num_samples=130", "metrics.batch_size=65"]
LIMIT = 240.0  # seconds for one command, many times what it takes on a quiet machine


def small(words: Sequence[str]) -> list[str]:
    """`SMALL` for a run with these words, which may choose a GAN."""
    return [word for word in SMALL if not (GANS.intersection(words) and word.startswith(OF_DIFFUSION))]


class Command(Child):
    """`diffusion-lab WORDS` in a forked process, in `folder`, with its output in a new file of that folder.

    Args:
        words: as typed after `diffusion-lab`.
        folder: the working folder.
        before: called first in the process, to patch it.
        fresh: execute `python -m tests.faults.command` instead of running in the fork.
        logs: folder for its output if not `folder`, whose disk may become full.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        before: Before | None = None,
        fresh: bool = False,
        logs: Path | None = None,
    ) -> None:
        self.words, self.folder, self.started = list(words), folder, time.monotonic()

        def work() -> None:
            end_with_parent(signal.SIGKILL)  # an interrupted campaign leaves no process
            for number in (signal.SIGTERM, signal.SIGHUP):  # which may be ignored under `nohup`
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.chdir(folder)
            if before is not None:
                before()
            if fresh:
                os.environ["PYTHONPATH"] = str(ROOT)
                os.execv(sys.executable, [sys.executable, "-m", "tests.faults.command", *words])
            sys.argv = ["diffusion-lab", *words]
            raise SystemExit(main(list(words)))

        logs = logs or folder
        super().__init__(work, logs / f"output-{len(list(logs.glob('output-*.log'))):02d}.log")

    @property
    def output(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace")

    def end(self, outcome: Outcome, limit: float = LIMIT) -> int | None:
        """Wait for it and record tracebacks; returns the exit code, None if it had to be killed."""
        try:
            code = self.wait(limit)
        except TimeoutError:
            outcome.problems.append(f"hangs: not done after {limit:.0f} s: {self.log}")
            return None
        outcome.read(self.output)
        return code

    def done(self, outcome: Outcome, code: int = 0, limit: float = LIMIT) -> bool:
        """Wait for it; it must end with `code`."""
        got = self.end(outcome, limit)
        last = (self.output.strip().splitlines() or [""])[-1][:300]
        return got is not None and outcome.expect(got == code, f"exit code {got} instead of {code}: {last}")


def train(folder: Path, words: Sequence[str], before: Before | None = None, logs: Path | None = None) -> Command:
    """Start `diffusion-lab train` for a run whose folder is the only one in `folder`/runs."""
    fresh = "trainer=ddp_cpu" in words

    def prepare() -> None:
        os.environ[SEEN] = str(folder / "seen.jsonl")
        if not fresh:
            record_batches(folder / "seen.jsonl")
        if before is not None:
            before()

    return Command(["train", *small(words), *words, f"paths.root={folder / 'runs'}"], folder, prepare, fresh, logs)


def run_folder(folder: Path) -> Path | None:
    """The run's folder, once it exists."""
    return next((path for path in (folder / "runs").glob("*") if path.is_dir()), None)


def last_step(folder: Path) -> int:
    """The newest step that the run has logged, 0 without one."""
    run = run_folder(folder)
    rows = read_lines(run / METRICS) if run else []
    return rows[-1]["step"] if rows else 0


def wait_for(condition: Callable[[], bool], command: Command, limit: float = LIMIT) -> bool:
    """Wait until a condition holds; False if the command ended or the time limit passed before."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        if has_ended(command):
            return condition()
        time.sleep(0.005)
    return False


def has_ended(command: Command) -> bool:
    """Whether the process has ended, without waiting for it, so that its exit code can still be read."""
    return os.waitid(os.P_PID, command.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_for_group(command: Command, limit: float = 30.0) -> bool:
    """Wait until no process of the command is left; False if one is left after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            os.killpg(command.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


# -- the results of a run ---------------------------------------------------------------------------------------


def ended(folder: Path) -> dict[str, Any]:
    """Everything that must be bitwise equal between two finished runs: weights, averages, optimizer, sampler,
    metrics.jsonl, evaluations.jsonl, images and timesteps of each row of each step, and losses."""
    run = run_folder(folder)
    assert run is not None, f"no run in {folder}"
    path = run / EVALUATIONS
    state = final_state(run) | {"evaluations": path.read_bytes() if path.exists() else b""}
    order, losses, contradictions = seen(folder / "seen.jsonl")
    return state | {"order": order, "losses": losses, "contradictions": contradictions}


def compare(outcome: Outcome, straight: dict[str, Any], other: dict[str, Any], what: str) -> None:
    """Record every part in which two runs differ."""
    outcome.differences += [f"{what}: {part}" for part in differences(straight, other)]


def record_batches(path: Path) -> None:
    """Patch this process so that every training step appends step, first row, images and timesteps of its rows, and
    loss to a file."""
    for kind in (DiffusionModule, AdversarialModule):
        kind.training_step = _noting(kind.training_step, path)


def _noting(original: Callable[..., dict[str, Any]], path: Path) -> Callable[..., dict[str, Any]]:
    def noting(self: RunModule, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        images = [hashlib.blake2b(row.numpy().tobytes(), digest_size=4).hexdigest() for row in batch["image"]]
        given = original(self, batch, batch_idx)
        position, record = self.position, given["record"]
        first = position.rows(len(images)).start
        timesteps = [None] * len(images) if record.t is None else record.t.tolist()
        loss = given.get("loss", record.loss.sum())
        line = [position.step, first, images, timesteps, loss.item().hex()]
        with path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")
        return given

    return noting


def seen(path: Path) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """The records of `record_batches`: image and timestep by "step/row", loss by "step/first row", and the steps that
    were repeated after a kill with other values."""
    order: dict[str, Any] = {}
    losses: dict[str, str] = {}
    again: list[str] = []
    for step, first, images, timesteps, loss in _lines(path):
        new = {f"{step}/{first + row}": pair for row, pair in enumerate(zip(images, timesteps, strict=True))}
        key = f"{step}/{first}"
        if any(order.get(name, value) != value for name, value in new.items()) or losses.get(key, loss) != loss:
            again.append(key)
        order |= new
        losses[key] = loss
    return order, losses, again


def _lines(path: Path) -> Iterator[list[Any]]:
    for line in path.read_text().splitlines():
        with suppress(ValueError):  # a partial line of a killed process
            yield json.loads(line)


@contextmanager
def timed() -> Iterator[list[float]]:
    """Measure a block; afterwards the list has its seconds."""
    start, seconds = time.monotonic(), list[float]()
    yield seconds
    seconds.append(time.monotonic() - start)
