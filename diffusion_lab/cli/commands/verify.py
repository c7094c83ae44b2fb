"""`diffusion-lab verify DIR`: run a run again and say whether it is equal to the bit.

The run is repeated from its record alone, in a temporary folder, as `resume=` would repeat it, so a folder from anybody
can be verified: nothing in it is executed, and it is not written to. A run that had an end and was then given a larger
`max_steps` is repeated in the same pieces, because an end validates and closes the interval of the training loss, and
both are lines of the log. Exit codes: 0 equal, 1 different or not known, 2 the folder is no run or asks for what a run
never records.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from diffusion_lab.cli.command_line import check_options
from diffusion_lab.cli.errors import EXIT_FAILED, StoppedBySignal, refuse
from diffusion_lab.failure import OtherData
from diffusion_lab.files_inside import read_inside
from diffusion_lab.printable import one_line
from diffusion_lab.runs.find import read_run
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import METRICS, RECORD
from diffusion_lab.runs.shell_commands import command, setting

if TYPE_CHECKING:
    from diffusion_lab.cli.app import App

EVERY = 0.2  # seconds between two looks at the log of a repetition


def main(argv: list[str]) -> int:
    """Repeat and compare; prints what differs and the verdict."""
    options, typed = _parser().parse_known_args(argv)
    from hydra._internal.utils import get_args_parser

    from diffusion_lab.cli.repetition import Repetition, last_step, training_ends
    from diffusion_lab.runs.record import read_record

    folder = Path(options.folder)
    try:
        check_options(argv, _parser(), get_args_parser())
        record = read_record(folder, "run")
        step = last_step(folder, options.steps)
        ends = training_ends(record, step)
    except (ValueError, FileNotFoundError) as error:
        return refuse(error)
    if record["config"].get("init_from") is not None:
        return _say("cannot say", "the run started from other weights, which its folder does not hold")
    with tempfile.TemporaryDirectory(prefix="verify-") as place:
        again = Path(place) / "run"
        again.mkdir()
        (again / RECORD).write_bytes(read_inside(folder / RECORD, folder))
        app, error = _repeat(again, record["config"]["max_steps"], ends, step, typed)
        if isinstance(error, OtherData):
            return _say("cannot say", str(error).replace(str(again), str(folder)))
        repetition = Repetition(folder, again, step)
        if error is not None and not (isinstance(error, StoppedBySignal) and repetition.is_complete):
            return _report(app, error, again, folder)
        if error is None and (done := read_run(again).step) < step:
            return refuse(
                f"a setting of the repetition ended it at step {done} of {step}; leave out dry_run, max_steps and "
                f"Hydra's own options: {shlex.join(typed)}"
            )
        for fault in (faults := repetition.faults()):
            print(one_line(f"  {fault}"))
        if not faults:
            before = ", then to ".join(map(str, ends[:-1]))
            how = f", trained to step {before} and then on, as the run was" if before else ""
            return _say("equal", f"{repetition.counts()} are equal to the bit, up to step {step}{how}", 0)
        if why := repetition.not_judged():
            return _say("cannot say", f"it differs, and {why}")
        return _say("different", f"{folder} is not what its configuration gives here up to step {step}")


def _repeat(
    again: Path, longest: int, ends: list[int], step: int, typed: list[str]
) -> tuple[App, BaseException | None]:
    """Train in a folder with a run.json to each of the ends, of the last one only to a step; `longest`: the recorded
    `max_steps`. Returns the command that ended it, and its error."""
    from diffusion_lab.cli.app import App
    from diffusion_lab.cli.outcome import temporary

    app, error = App("train", [], typed=[]), None
    for end in ends:
        length = [] if ends == [longest] else [f"max_steps={end}"]
        words = [f"resume='{again}'", "logger=default", *length, *typed]
        app = App("train", words, typed=["train", *words])
        with temporary(again), nullcontext() if end <= step else stopped_after(again / METRICS, step):
            error = app.attempt()
        if error is not None:
            break
    return app, error


@contextmanager
def stopped_after(log: Path, step: int) -> Iterator[None]:
    """Stop the training inside as SIGTERM does, soon after its log has reached a step: none of its settings changes."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(EVERY):
            if any(row["step"] >= step for row in read_lines(log)):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    before = signal.signal(signal.SIGTERM, lambda *_: None)  # for one that comes after the training
    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        signal.signal(signal.SIGTERM, before)


def _report(app: App, error: BaseException, again: Path, folder: Path) -> int:
    """Print what ended the repetition, of the folder that was named; returns the exit code."""
    with redirect_stderr(io.StringIO()) as said:
        code = app.code_of(error)
    text, name = said.getvalue(), one_line(str(folder))
    text = text.replace(command("train", setting("resume", again)), one_line(command("verify", folder)))
    print(text.replace(f"resume={again}", f"run={name}").replace(str(again), name), end="", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab verify",
        description="Run a run again in a temporary folder and say whether its metrics and checkpoints are equal to "
        "the bit. Further words are settings, as with `train resume=DIR`: --config-dir, allow=, trainer.accelerator=.",
    )
    parser.add_argument("folder", metavar="DIR", help="a run folder; it is only read")
    parser.add_argument("--steps", metavar="K", type=int, help="only to step K; default: to its last one")
    return parser


def _say(word: str, why: str, code: int = EXIT_FAILED) -> int:
    print(one_line(f"{word}: {why}"))
    return code
