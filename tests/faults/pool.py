"""Run cases in separate processes, a few at a time."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.faults.case import Case, Outcome
from tests.harness import Child


class _Running:
    """A running case in `folder`; it writes its outcome to a file."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case, self.folder, self.started = case, folder, time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._file = folder / "outcome.json"
        self.child = Child(lambda: self._file.write_text(json.dumps(case.work(folder).plain())), folder / "case.log")

    def outcome(self) -> Outcome | None:
        """The outcome; None while the case runs."""
        seconds = time.monotonic() - self.started
        code = self.child.poll()
        if code is None:
            if seconds < self.case.limit:
                return None
            self.child.kill()
            outcome = Outcome(problems=[f"took more than {self.case.limit:.0f} s"])
        elif code == 0:
            outcome = Outcome(**json.loads(self._file.read_text()))
        else:
            said = self.child.log.read_text(errors="replace").strip().splitlines()
            outcome = Outcome(problems=[f"the case itself ended with exit code {code}: {' '.join(said[-1:])[:300]}"])
        outcome.seconds = round(seconds, 2)
        if not outcome.wrong:
            shutil.rmtree(self.folder, ignore_errors=True)  # folders of failed cases are kept
        return outcome


def run(cases: Sequence[Case], folder: Path, jobs: int, ended: Callable[[Case, Outcome], object]) -> None:
    """Run cases, `jobs` at a time, and call `ended` as each ends; an interruption stops all of them."""
    waiting, running = list(cases), list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                case = waiting.pop(0)
                running.append(_Running(case, folder / case.folder))
            for item in list(running):
                outcome = item.outcome()
                if outcome is not None:
                    running.remove(item)
                    ended(item.case, outcome)
            time.sleep(0.01)
    finally:
        for item in running:
            with suppress(ProcessLookupError, ChildProcessError):
                item.child.kill()
