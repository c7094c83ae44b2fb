"""The number of processes of a run, how they divide the batch, and the rank of this one before they are connected.

    batch_size = processes * accumulate * images_per_device

The configuration states the global batch. The number of processes comes from the machine, and one of the last two
factors follows from the other.

Processes are started by Lightning on this machine (LOCAL_RANK), by torchrun (RANK) or by srun (SLURM_PROCID).
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from omegaconf import DictConfig

from diffusion_lab.failure import Failure
from diffusion_lab.printable import one_line

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK")
LAST_WORD_S = 10.0  # time for the first process to report why it ends


def world_size(cfg: DictConfig) -> int:
    """Processes of the run: devices times nodes."""
    return local_devices(cfg.trainer) * int(cfg.trainer.get("num_nodes", 1) or 1)


def local_devices(trainer: DictConfig) -> int:
    """Devices on one machine; "auto" and -1 mean all GPUs, or one process on the CPU."""
    asked = trainer.get("devices", 1)
    if asked in ("auto", -1, "-1"):
        return max(1, gpu_count()) if trainer.get("accelerator", "auto") != "cpu" else 1
    if isinstance(asked, int):
        return asked
    if isinstance(asked, str):
        words = [word for word in asked.split(",") if word]
        return int(asked) if asked.isdigit() else len(words)
    return len(asked or ())


def gpu_count() -> int:
    """GPUs of this machine, without making a CUDA context, which a forked job could not replace."""
    import torch

    return torch.cuda.device_count()


def in_a_process(call: Callable[[], T]) -> T:
    """The value of `call` in a copy of this process. PyTorch's threads, which it may start, are not here then: a job
    that is forked from a process that has them waits for ever.

    Raises:
        Failure: the copy has ended without an answer.
    """
    import multiprocessing

    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(call, there))
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads; numpy's are safe
        process.start()
    there.close()
    try:
        answer = here.recv()
    except EOFError:
        process.join()
        answer = Failure(f"a copy of this process ended with exit code {process.exitcode}")
    finally:
        process.terminate()
        process.join()
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _answer(call: Callable[[], Any], there: Connection) -> None:
    try:
        answer = call()
    except BaseException as error:  # is raised again where it was called
        error.add_note("".join(traceback.format_exception(error)))
        answer = error
    try:
        pickle.loads(pickle.dumps(answer))
    except Exception:  # it cannot be sent, or not be made again
        answer = Failure(f"{type(answer).__name__}: {answer}")
    there.send(answer)
    there.close()


def on_cpu(trainer: DictConfig) -> bool:
    """Whether a run that takes place on this machine computes on its CPU."""
    accelerator = trainer.get("accelerator", "auto")
    return accelerator == "cpu" or (accelerator == "auto" and gpu_count() == 0)


def microbatches(*, _root_: DictConfig) -> int:
    """`${microbatches:}`: `accumulate` from `images_per_device`, batch_size / (processes * images_per_device).

    1 without `images_per_device`, and if the quotient is not an integer, which `batch_fault` reports.
    """
    if _root_.get("images_per_device") is None:
        return 1
    rows, share = _rows_and_share(_root_)
    return 1 if rows is None or share is None or share % rows else share // rows


def batch_fault(cfg: DictConfig) -> str | None:
    """The message for an `images_per_device` that does not divide a process's share of the batch, or that contradicts
    `accumulate`; else None. The data module checks that the batch divides among the processes.
    """
    rows, share = _rows_and_share(cfg)
    if rows is None or share is None:
        return None
    processes = world_size(cfg)
    if share % rows:
        divisors = [n for n in range(1, share + 1) if share % n == 0]
        below, above = [n for n in divisors if n < rows][-1:], [n for n in divisors if n > rows][:1]
        unit = processes * rows
        batches = [n for n in (cfg.batch_size // unit * unit, (cfg.batch_size // unit + 1) * unit) if n]
        return (
            f"images_per_device={rows} must divide the {share} images that each of {processes} processes has of "
            f"batch_size={cfg.batch_size}; use {_either(below + above)}, or batch_size={_either(batches)}"
        )
    if cfg.accumulate != share // rows:
        return (
            f"accumulate={cfg.accumulate} must be {share // rows}, which is batch_size={cfg.batch_size} / "
            f"({processes} processes x images_per_device={rows}); leave it out, or use images_per_device=null"
        )
    return None


def _either(values: list[int]) -> str:
    return " or ".join(map(str, values))


def _rows_and_share(cfg: DictConfig) -> tuple[int | None, int | None]:
    """`images_per_device`, and the images of one process if the batch divides; None for what is unset or invalid."""
    rows, batch = cfg.get("images_per_device"), cfg.get("batch_size")
    numbers = type(rows) is int and rows > 0 and type(batch) is int and batch > 0
    if not numbers or not isinstance(cfg.get("trainer"), DictConfig):
        return None, None
    processes = world_size(cfg)
    return rows, batch // processes if processes > 0 and batch % processes == 0 else None


def is_first() -> bool:
    """Whether this is the process of rank 0: only this one checks the configuration, locks the folder and prints."""
    ranks = [os.environ.get(name, "0") for name in RANK_VARIABLES]
    if srun_tasks():
        ranks.append(os.environ.get("SLURM_PROCID", "0"))
    return set(ranks) <= {"", "0"}


def say(*lines: str) -> None:
    """Print lines, in the first process only."""
    for line in lines if is_first() else ():
        print(one_line(line), flush=True)


def srun_tasks() -> int:
    """Processes that srun started for this run, 0 outside SLURM and in an interactive shell, as Lightning sees it."""
    if os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        return 0
    return int(os.environ.get("SLURM_NTASKS") or 0)


def end_with_parent(number: int) -> None:
    """Receive this signal when the parent dies, so that no orphan continues. Linux only."""
    with suppress(Exception):
        ctypes.CDLL(None).prctl(1, int(number))  # PR_SET_PDEATHSIG


def wait_for_the_first() -> None:
    """In a rank that the first one started: let the first one end, which also ends this one.

    Lightning's first process kills itself if another one ends with an error code, and could not report what happened.
    """
    if not is_first() and os.environ.get("LOCAL_RANK") and not srun_tasks() and "TORCHELASTIC_RUN_ID" not in os.environ:
        time.sleep(LAST_WORD_S)


def end_with_the_first() -> None:
    """In a rank that another process started: die with it, also while waiting in a collective for dead processes.

    Lightning's first process monitors the others, but not the reverse. SIGKILL, because a stopped process or one that
    hangs in a collective reacts to no other signal; the first process writes the checkpoint.
    """
    if not is_first():
        end_with_parent(signal.SIGKILL)
