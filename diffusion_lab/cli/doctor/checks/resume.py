"""A run that is killed and started again ends as one that was not interrupted, to the bit."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

from diffusion_lab.cli.doctor.check import CPU, CheckPlace, Finding, check, differs, ok
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import CHECKPOINTS, LAST, METRICS

KILLED_AFTER, EVERY = 16, 5  # optimizer steps: of the kill, and between two checkpoints
LOOK_S = 0.002  # seconds between two looks at the log of the run that is to be killed


@check(limit=240, fresh=True)
def kill_and_resume(place: CheckPlace) -> Finding:
    """Checkpoint and metrics.jsonl of a run that SIGKILL ended at step 16 or soon after, and of one that went through.

    On a GPU with `trainer.deterministic=true`, without which it adds in an order that changes.
    """
    through, killed = place.folder / "through", place.folder / "killed"
    ended(started(through, place), through)
    at = kill(started(killed, place), killed)
    ended(started(killed, place), killed)
    if faults := differences(through, killed):
        return differs("; ".join(faults))
    return ok(f"killed at step {at}; checkpoint and {METRICS} are equal to the bit")


def started(folder: Path, place: CheckPlace) -> int:
    """The process of `diffusion-lab train` for a run, forked, because imports would take longer than the run."""
    from diffusion_lab.cli.commands.train import run
    from diffusion_lab.cli.config import compose_train
    from diffusion_lab.cli.doctor.small_training import SMALL

    words = [*SMALL, *place.settings, f"checkpoint_every={EVERY}"]
    if place.device != CPU:
        words.append("trainer.deterministic=true")
    cfg = compose_train(words, folder)
    return forked(lambda: run(cfg), folder.with_suffix(".log"))


def forked(work: Callable[[], object], log: Path) -> int:
    """The id of a copy of this process, which must not have computed anything yet, that does the work."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads, which compute nothing yet
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(log, "wb") as file:
            for number in (1, 2):
                os.dup2(file.fileno(), number)
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, folder: Path) -> None:
    """Wait until a run is done; RuntimeError, with the last line that it said, if it failed."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        last = folder.with_suffix(".log").read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"a run ended with exit code {code}: {last}")


def kill(pid: int, folder: Path) -> int:
    """SIGKILL a run once it has logged the step, RuntimeError if it ended before; returns the last step that it has
    logged."""
    log = folder / METRICS
    while not log.exists() or f'"step": {KILLED_AFTER},' not in log.read_text(encoding="utf-8"):
        if os.waitpid(pid, os.WNOHANG)[0]:
            raise RuntimeError(f"a run ended before step {KILLED_AFTER}, at which it was to be killed")
        time.sleep(LOOK_S)
    os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != -signal.SIGKILL:
        raise RuntimeError(f"a run that was to be killed ended with exit code {code} before")
    return max(row["step"] for row in read_lines(log))


def differences(one: Path, other: Path) -> list[str]:
    """What differs in the last checkpoints and logs of two runs, a clause each."""
    from diffusion_lab.cli.repetition import compared_state
    from diffusion_lab.testing import same
    from diffusion_lab.training.checkpoint_io import load

    a, b = (compared_state(load(run / CHECKPOINTS / LAST, map_location="cpu")) for run in (one, other))
    faults = [f"other {key}{_by(a[key], b[key])} in the checkpoint" for key in a if not same(a[key], b[key])]
    logs = [(run / METRICS).read_bytes() for run in (one, other)]
    return faults + ([f"other bytes in {METRICS}"] if logs[0] != logs[1] else [])


def _by(one: object, other: object) -> str:
    """The largest difference of two dicts of tensors, if they are that."""
    import torch

    if not isinstance(one, dict) or not isinstance(other, dict) or one.keys() != other.keys():
        return ""
    pairs = [(a, b) for a, b in zip(one.values(), other.values(), strict=True) if torch.is_tensor(a)]
    gaps = [float((a.double() - b.double()).abs().max()) for a, b in pairs if a.shape == b.shape and a.numel()]
    return f" (by {max(gaps):.1e})" if gaps else ""
