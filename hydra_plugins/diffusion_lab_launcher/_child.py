"""Child processes of the launcher: forked from it, or a new command for a job that starts processes itself."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import JobStatus, run_job
from hydra.types import HydraContext, TaskFunction

from diffusion_lab.cli.conf_folder import config_dirs
from diffusion_lab.cli.errors import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_LOCKED,
    ConfigError,
    InvalidConfig,
    StoppedBySignal,
    describe,
)
from diffusion_lab.cli.processes import RANK_VARIABLES as RANKS
from diffusion_lab.cli.processes import end_with_parent, local_devices, on_cpu
from diffusion_lab.printable import escape_output
from diffusion_lab.runs.folder import RunLocked, open_log
from diffusion_lab.runs.record import as_error
from diffusion_lab.runs.shell_commands import setting
from hydra_plugins.diffusion_lab_launcher._jobs import Job

# Variables that would make a job a rank of the process that started the sweep.
RANK_VARIABLES = (*RANKS, "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PL_GLOBAL_SEED")
RANK_VARIABLES += tuple(f"SLURM_{name}" for name in ("NTASKS", "NTASKS_PER_NODE", "PROCID", "LOCALID", "NODEID"))
OWN_COMMAND = ("hydra.mode", "hydra.run.", "hydra.sweep", "hydra.launcher", "hydra/launcher", "hydra/sweeper")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GPU_MEMORY = "/dev/nvidia-uvm"
MESSAGE_LIMIT = 12_000  # characters of at most 4 bytes; a pipe holds 64 KiB without a reader


class Child:
    """A running job: its process leads a session and a process group of its own."""

    def __init__(self, pid: int, pipe: int | None = None) -> None:
        self.pid, self._pipe = pid, pipe
        self.forked = pipe is not None  # sends a message when it ends; a command has only its exit code

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while the job runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.kill(signal.SIGKILL)  # processes that the job may have left, such as data loader workers
        return os.waitstatus_to_exitcode(status)

    def ask(self, number: int) -> None:
        """Send a signal to the job's first process, which stops its own workers."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self, number: int) -> None:
        """Send a signal to all processes of the job."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def message(self) -> dict[str, Any]:
        """{"value": ..., "error": ...} that a forked job sent before it ended; empty if it sent nothing."""
        if self._pipe is None:
            return {}
        ready, _, _ = select.select([self._pipe], [], [], 0)
        text = os.read(self._pipe, 1 << 16) if ready else b""
        os.close(self._pipe)
        self._pipe = None
        try:
            return json.loads(text)
        except ValueError:
            return {}


def handled_signals() -> list[signal.Signals]:
    """The signals of `STOPPING` that this process does not ignore: under `nohup`, SIGHUP stays ignored."""
    return [number for number in STOPPING if signal.getsignal(number) != signal.SIG_IGN]


def fork(job: Job, task: TaskFunction, context: HydraContext, environment: dict[str, str], threads: int) -> Child:
    """Run the job in a copy of this process."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    # Block signals until the child has its own handlers, or the launcher's would receive them.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads; numpy's are safe
        pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        os.close(writer)
        return Child(pid, reader)
    code = EXIT_FAILED
    try:
        os.close(reader)
        _detach(job)
        os.environ.clear()
        os.environ.update(environment)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
        if hasattr(task, "checked"):  # the launcher has
            task.checked = True
        code, message = work(job, task, context)
        os.write(writer, json.dumps(message, ensure_ascii=False).encode(errors="replace"))
    except BaseException:  # nothing may propagate into the launcher's stack
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def _detach(job: Job) -> None:
    """Start a new session, write to train.log, reset signals, and end when the launcher ends."""
    os.setsid()
    end_with_parent(signal.SIGTERM)
    for number in handled_signals():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    write_to_log(job)


def write_to_log(job: Job) -> None:
    """Redirect standard output and error to train.log in the job's folder, and standard input from /dev/null."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    with open_log(job.folder) as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    escape_output()
    faulthandler.enable(2)


def work(job: Job, task: TaskFunction, context: HydraContext) -> tuple[int, dict[str, Any]]:
    """Run the task; returns the exit code and the message to the launcher."""
    if hasattr(task, "typed"):
        task.typed = command(job, getattr(task, "arguments", []))[3:]
    try:
        returned = run_job(task, job.config, "hydra.run.dir", None, context)
        value = returned._return_value
        error = value if returned.status == JobStatus.FAILED else getattr(task, "error", None)
    except BaseException as raised:  # also SystemExit and KeyboardInterrupt
        error = raised
    if error is None:
        return 0, {"value": value if isinstance(value, int | float) else None}
    text = "".join(traceback.format_exception(error))
    print(error if isinstance(error, RunLocked | StoppedBySignal) else text, flush=True)
    message = describe(error).partition(": ")[2] if isinstance(error, SystemExit) else str(error)
    return _exit_code(error), {"error": as_error(type(error).__name__, message[:2000], text[-MESSAGE_LIMIT:])}


def _exit_code(error: BaseException) -> int:
    """The exit code of a job that raised; sys.exit(0) in a part is not success, and sys.exit(3) not a locked folder."""
    if isinstance(error, RunLocked):
        return EXIT_LOCKED
    if isinstance(error, ConfigError | InvalidConfig):
        return EXIT_CONFIG
    if isinstance(error, StoppedBySignal):
        return 128 + error.signal_number
    return 130 if isinstance(error, KeyboardInterrupt) else EXIT_FAILED


def start_command(job: Job, arguments: list[str], environment: dict[str, str]) -> Child:
    """Run the job as a new command, whose `sys.argv` describes only this job."""
    with open_log(job.folder) as output:
        process = subprocess.Popen(
            command(job, arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_let_signals_through,
        )
    process.returncode = 0  # `Child` waits for it; Popen's own destructor must not
    return Child(process.pid)


def _let_signals_through() -> None:
    """In a new command before it starts: end with the launcher, and receive the signals that it forwards, also where
    the launcher is in a process that blocks them, as Ray's do."""
    end_with_parent(signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def command(job: Job, arguments: list[str]) -> list[str]:
    """The command that runs only this job; `arguments` are those of the sweep, for its --config-dir."""
    options = [f"--config-dir={folder}" for folder in config_dirs(arguments)]
    own = [word for word in job.config.hydra.overrides.hydra if not word.lstrip("+~").startswith(OWN_COMMAND)]
    last = ["hydra.mode=RUN", setting("hydra.run.dir", job.folder), "hydra.job_logging.root.handlers=[console]"]
    return [sys.executable, "-m", "diffusion_lab.cli.main", "train", *options, *job.overrides, *own, *last]


def needs_command(job: Job) -> bool:
    """Whether the job cannot be a copy of this process."""
    trainer = job.config.get("trainer")
    return starts_processes(job) or (trainer is not None and gpu_in_use() and not on_cpu(trainer))


def starts_processes(job: Job) -> bool:
    """Whether the job's strategy starts processes by executing `sys.argv` again."""
    trainer = job.config.get("trainer")
    if trainer is None:
        return False
    if any(word in str(trainer.get("strategy", "auto")) for word in ("fork", "spawn", "notebook")):
        return False
    return local_devices(trainer) > 1


def gpu_in_use() -> bool:
    """Whether this process has initialised NVIDIA's driver, which then holds the device of its memory open: a copy of
    the process could not use a GPU. Nothing of ours does that before a fork; a sweep's own parts may."""
    folder = Path("/proc/self/fd")
    for number in os.listdir(folder) if folder.is_dir() else ():
        with suppress(OSError):  # the file of the listing is closed by now
            if os.readlink(folder / number).startswith(GPU_MEMORY):
                return True
    return False
