"""Runs checks in processes of their own, so that a check that hangs or kills its process ends nothing but itself.

A process runs checks one after the other, until one crashes. It is given the descriptor of a pipe and, as JSON, the
place and the checks. Each finding is a line of JSON in the pipe. What libraries print goes to the log that its standard
streams are.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from diffusion_lab.cli.doctor.check import Check, Finding, differs, place_of
from diffusion_lab.cli.processes import RANK_VARIABLES, end_with_parent
from diffusion_lab.progress import duration

STARTING_S = 60.0  # until a process is there; what a check imports counts to its own time
TICK_S = 0.2  # seconds between two calls of `waiting`
ENDING_S = 5.0  # a process that hangs in a driver may not end at once, or ever; it is then left behind
SAID = 200  # characters of the log of a process that ended, which hold the reason

PROGRAM = f"from {__name__} import run_checks; run_checks()"

Waiting = Callable[[Check, float], object]  # is called with the check that runs and the seconds since it began


def examined(checks: Sequence[Check], work: Path, devices: int, waiting: Waiting) -> Iterator[tuple[Check, Finding]]:
    """Each check with its finding, in order; all run on the same device, one of `devices`, and `waiting` is called
    meanwhile."""
    left = list(checks)
    while left:
        together = left[:1] + list(takewhile(lambda check: not check.fresh, left[1:]))
        worker = Worker(together, work, devices)
        try:
            for check in together:
                finding = worker.finding(check, waiting)
                left.pop(0)
                yield check, finding
                if finding.crashed:
                    break
        finally:
            worker.end()


class Worker:
    """A process that runs checks one after the other.

    Args:
        checks: what it runs.
        work: the folder of their runs, in which its log is.
        devices: number of devices of the kind.
    """

    def __init__(self, checks: Sequence[Check], work: Path, devices: int) -> None:
        self.log = work / "worker.log"
        place = {"device": checks[0].device, "work": str(work), "devices": devices}
        self._reader, writer = os.pipe()
        self._text, self._started = b"", False
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                # -P: a file torch.py of the working folder is not torch.
                [sys.executable, "-P", "-c", PROGRAM, str(writer), json.dumps(place), json.dumps(checks)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(),
                pass_fds=(writer,),
                start_new_session=True,
            )
        os.close(writer)

    def finding(self, check: Check, waiting: Waiting) -> Finding:
        """What the process finds by the next check."""
        answer = b"" if self._started else self._line(check, STARTING_S, waiting)
        self._started = True
        if not isinstance(answer, Finding):
            answer = self._line(check, check.limit, waiting)
        return answer if isinstance(answer, Finding) else Finding(*json.loads(answer))

    def _line(self, check: Check, limit: float, waiting: Waiting) -> bytes | Finding:
        """The next line from the pipe; a finding if there is none within `limit` seconds, or the process ends."""
        start = time.monotonic()
        waiting(check, 0.0)
        while b"\n" not in self._text:
            spent = time.monotonic() - start
            if spent > limit:
                return differs(f"no answer within {duration(limit)}", crashed=True)
            waiting(check, spent)
            if select.select([self._reader], [], [], TICK_S)[0]:
                text = os.read(self._reader, 1 << 16)
                if not text:
                    return differs(self._ended(), crashed=True)
                self._text += text
        line, _, self._text = self._text.partition(b"\n")
        return line

    def end(self) -> None:
        """Kill what is left of the process and of those that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        self._process.returncode = self._process.returncode or 0  # or its destructor would complain
        with suppress(OSError):
            os.close(self._reader)

    def _ended(self) -> str:
        """Why the process ended without a finding."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ENDING_S)
        code = self._process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        last = self.log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        return f"its process ended with {how}" + (f": {last[-SAID:]}" if last else "")


def environment() -> dict[str, str]:
    """The variables of a worker: it finds the same package, and is no rank of another run."""
    import diffusion_lab

    parent = str(Path(diffusion_lab.__file__).resolve().parents[1])
    ranks = (*RANK_VARIABLES, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    kept = {key: value for key, value in os.environ.items() if key not in ranks}
    path = [parent, *filter(None, [kept.get("PYTHONPATH")])]
    # Threads that wait for one another leave the cores to other programs meanwhile.
    quiet = {"OMP_WAIT_POLICY": kept.get("OMP_WAIT_POLICY", "PASSIVE"), "WANDB_SILENT": "true"}
    return kept | quiet | {"PYTHONPATH": os.pathsep.join(path)}


def run_checks() -> None:
    """What the process does."""
    end_with_parent(signal.SIGKILL)
    pipe, place, checks = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    where = place_of(place["device"], Path(place["work"]), place["devices"])
    where.folder.mkdir(parents=True, exist_ok=True)
    findings = open(int(pipe), "w", encoding="utf-8", buffering=1)  # each line is sent at once
    findings.write("\n")  # it has started
    for one in checks:
        finding = Check(*one).run(where)
        findings.write(f"{json.dumps(finding)}\n")
        if finding.crashed:
            break
    sys.stdout.flush()
    os._exit(0)  # a driver that hangs at exit, and threads that libraries left, are no concern of the findings
