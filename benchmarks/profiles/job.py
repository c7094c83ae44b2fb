"""The cost of a job of a sweep besides its training.

CPU time of each part, the median of 9, for the default configuration: first the launcher's work before it forks a job,
of which jobs that differ in nothing but the seed share the composition, then the work of the forked process before and
around the fit. The check of a job is that of a second seed, whose parts have been built for the first.
"""

from __future__ import annotations

import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from omegaconf import OmegaConf

from diffusion_lab.cli.app import App
from diffusion_lab.cli.build import build_run
from diffusion_lab.cli.commands.train import facts, quiet_libraries
from diffusion_lab.cli.config import compose_train, config_hash
from diffusion_lab.cli.output_folders import write_hydra_folder

REPEATS = 9


def rows() -> Iterator[tuple[str, ...]]:
    quiet_libraries()
    yield "part", "where", "ms of CPU"
    with tempfile.TemporaryDirectory() as folder:
        whole = compose_train([], Path(folder) / "run")
        cfg = OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
        app = App("train", [], [])
        app.check(cfg)
        parts: dict[str, tuple[str, Callable[[], object]]] = {
            "Hydra composes, once for all seeds": ("launcher", lambda: compose_train([], Path(folder) / "run")),
            "hash of the configuration, twice": ("launcher", lambda: (config_hash(whole), config_hash(whole))),
            "check": ("launcher", lambda: app.check(cfg)),
            "fork, and the memory that it copies": ("both", _fork),
            "`.hydra` is written": ("job", lambda: write_hydra_folder(Path(folder), cfg, whole.hydra)),
            "facts of run.json: two hashes, git, versions": ("job", lambda: facts(cfg)),
            "parts are built": ("job", lambda: build_run(cfg, {})),
        }
        for name, (where, part) in parts.items():
            yield name, where, f"{1e3 * statistics.median(_cpu(part) for _ in range(REPEATS)):.0f}"


def _cpu(part: Callable[[], object]) -> float:
    """CPU seconds of a call, including the child processes that it waits for."""
    start = _spent()
    part()
    return _spent() - start


def _spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
