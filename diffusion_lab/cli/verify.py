"""`diffusion-lab verify DIR`: run a run again and say whether it is equal to the bit.

The run is repeated from its record alone, in a temporary folder, as `resume=` would repeat it, so a folder from anybody
can be verified: nothing in it is executed, and it is not written to. Exit codes: 0 equal, 1 different or not known,
2 the folder is no run or asks for what a run never records.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread

from diffusion_lab.cli.errors import EXIT_FAILED, StoppedBySignal, refuse
from diffusion_lab.failure import OtherData
from diffusion_lab.inside import read_inside
from diffusion_lab.printable import one_line
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import METRICS, RECORD

EVERY = 0.2  # seconds between two looks at the log of a repetition


def main(argv: list[str]) -> int:
    """Repeat and compare; prints what differs and the verdict."""
    try:
        options, typed = _parser().parse_known_args(argv)
    except SystemExit as end:  # argparse has printed the help or the error
        return int(end.code or 0)
    from diffusion_lab.cli.app import App
    from diffusion_lab.cli.repeated import Repetition, last_step
    from diffusion_lab.runs.record import read_record

    folder = Path(options.folder)
    try:
        record = read_record(folder, "verify")
        step = last_step(folder, options.steps)
    except (ValueError, FileNotFoundError) as error:
        return refuse(error)
    if record["config"].get("init_from") is not None:
        return _say("cannot say", "the run started from other weights, which its folder does not hold")
    with tempfile.TemporaryDirectory(prefix="verify-") as place:
        again = Path(place) / "run"
        again.mkdir()
        (again / RECORD).write_bytes(read_inside(folder / RECORD, folder))
        words = [f"resume='{again}'", "logger=default", *typed]
        whole = step == record["config"].get("max_steps")
        app = App("train", words, typed=["train", *words])
        with nullcontext() if whole else stopped_after(again / METRICS, step):
            error = app.attempt()
        if isinstance(error, OtherData):
            return _say("cannot say", str(error).replace(str(again), str(folder)))
        repetition = Repetition(folder, again, step)
        if error is not None and not (isinstance(error, StoppedBySignal) and repetition.arrived):
            return app.code_of(error)
        for fault in (faults := repetition.faults()):
            print(one_line(f"  {fault}"))
        if not faults:
            return _say("equal", f"{repetition.counts()} are equal to the bit, up to step {step}", 0)
        if other := repetition.other_versions():
            return _say("cannot say", f"it differs, and was trained with other versions: {other}")
        return _say("different", f"{folder} is not what its configuration gives here up to step {step}")


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
