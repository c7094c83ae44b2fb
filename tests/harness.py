"""Whole training runs in forked children, so that tests can kill them and read what they left.

A fork costs no import of torch; `OMP_NUM_THREADS=1` keeps the parent free of thread pools, which a fork would break.
What a child imported, its parent imports when the child has ended, so that the next one has it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from omegaconf import DictConfig

from diffusion_lab.cli.config import compose_train
from diffusion_lab.testing import same
from diffusion_lab.training.checkpoint_io import load

TINY = [
    "base=ddpm",  # whatever the defaults are
    "network=unet_tiny",
    "network.base_channels=8",
    "network.channel_multipliers=[1,2]",
    "schedule.num_timesteps=40",
    "batch_size=16",
    "optimizer.lr=0.001",
    "callbacks.ema.decays=[0.9,0.99]",
    "trainer.accelerator=cpu",
    "~callbacks.generation",
    "log_every=1",
    "snapshot_every=5",
    "checkpoint_every=3",
    "callbacks.validation.bins=4",
    "callbacks.timestep_log.bins=4",
]
PLACES = tuple(place for place in sys.path if place)  # of modules that are the same for every test


def configuration(folder: Path, *overrides: str) -> DictConfig:
    """The composed training configuration of a tiny run in `folder`."""
    return compose_train([*TINY, *overrides], folder)


class Child:
    """`work()` in a forked process with its own process group; standard output goes to `log`."""

    def __init__(self, work: Callable[[], object], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._imported = os.memfd_create("imported")
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            gc.freeze()
            before = set(sys.modules)
            # A shell ignores SIGINT for what it starts in the background, and nohup SIGHUP; a child would stay so.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            # pytest has put files of its own in their place.
            sys.stdout = sys.stderr = os.fdopen(os.dup(1), "w", buffering=1)
            code = 1
            try:
                torch.set_num_threads(1)
                # Lightning refuses to fork ranks from a fork of a process that has asked for GPUs. None is used here.
                torch.cuda._is_in_bad_fork = lambda: False
                work()
                code = 0
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:
                traceback.print_exc()
            finally:
                # Also with a full disk: a fork that went on would do its parent's work.
                with contextlib.suppress(Exception):
                    os.write(self._imported, "\n".join(_imported_since(before)).encode())
                with contextlib.suppress(OSError):
                    sys.stdout.flush()
                os._exit(code)
        while os.getsid(self.pid) != self.pid:  # until it has its group, there is nothing that `kill` could kill
            time.sleep(0.001)

    def kill(self) -> None:
        """SIGKILL to the whole group, ranks and data workers included."""
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._imported)
        # Ranks are nobody's children now and hold the run folder's lock until the last of them is gone.
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.killpg(self.pid, 0)
                time.sleep(0.01)

    def poll(self) -> int | None:
        """Exit code, or None while it runs; negative for a signal."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        with open(self._imported) as names:
            names.seek(0)
            _import_too(names.read().split())
        return os.waitstatus_to_exitcode(status)

    def wait(self, limit: float = 120.0) -> int:
        """Exit code; the child is killed and TimeoutError raised when it takes longer than `limit` seconds."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            code = self.poll()
            if code is not None:
                return code
            time.sleep(0.02)
        self.kill()
        raise TimeoutError(f"child took more than {limit} s; its log:\n{self.log.read_text()[-3000:]}")

    def succeed(self, limit: float = 120.0) -> None:
        """Wait, and show the log if it failed."""
        code = self.wait(limit)
        assert code == 0, f"exit code {code}; log:\n{self.log.read_text()[-5000:]}"


def _imported_since(before: set[str]) -> list[str]:
    """Names of modules, none of them a test's own."""
    files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
    return [name for name, file in files.items() if name not in before and file.startswith(PLACES)]


def _import_too(names: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def train_child(cfg: DictConfig, before: Callable[[], object] | None = None) -> Child:
    """`diffusion-lab train` for a composed configuration; `before` may patch the child's process first."""

    def work() -> None:
        from diffusion_lab.cli.commands.train import run

        if before is not None:
            before()
        run(cfg)

    return Child(work, Path(cfg.paths.run_dir) / "child.log")


def command_child(words: Sequence[str], folder: Path, log: str = "log") -> Child:
    """`diffusion-lab WORDS` in a working folder, with its output in a file of it; processes that it starts by its own
    command line, as the ranks of `trainer=ddp`, are fresh ones."""

    def work() -> None:
        os.chdir(folder)
        module = importlib.import_module("diffusion_lab.cli.main")
        sys.modules["__main__"], sys.argv = module, ["diffusion-lab", *words]
        raise SystemExit(module.main(list(words)))

    return Child(work, folder / log)


def wait_for_step(child: Child, folder: Path, step: int, limit: float = 60.0) -> None:
    """Until metrics.jsonl has a line of this step, or the child ends."""
    path, end = folder / "metrics.jsonl", time.monotonic() + limit
    while time.monotonic() < end:
        if path.exists() and f'"step": {step},' in path.read_text():
            return
        time.sleep(0.002)
    raise TimeoutError(f"step {step} not reached; log:\n{child.log.read_text()[-3000:]}")


def trained(
    cfg: DictConfig, kills: Sequence[int] = (), before: Callable[[], object] | None = None
) -> dict[str, object]:
    """The final state of a run that is killed at each step of `kills` and started again; `before` as above."""
    folder = Path(cfg.paths.run_dir)
    for step in kills:
        child = train_child(cfg, before)
        wait_for_step(child, folder, step)
        child.kill()
    train_child(cfg, before).succeed()
    return final_state(folder)


def final_state(folder: Path) -> dict[str, object]:
    """Weights, optimizer and the callbacks' state from last.ckpt, and the bytes of metrics.jsonl.

    Left out are the clock (Progress) and the configuration (RunRecord), which holds the folder's own path.
    """
    content = load(folder / "checkpoints" / "last.ckpt", map_location="cpu")
    callbacks = {key: value for key, value in content["callbacks"].items() if key not in ("Progress", "RunRecord")}
    return {
        "step": content["global_step"],
        "weights": dict(content["state_dict"]),
        "optimizer": content["optimizer_states"],
        "callbacks": callbacks,
        "metrics": (folder / "metrics.jsonl").read_bytes(),
    }


def differences(a: dict[str, object], b: dict[str, object]) -> list[str]:
    """Names of the parts that are not equal to the bit."""
    return [key for key in sorted(a.keys() | b.keys()) if not same(a.get(key), b.get(key))]
