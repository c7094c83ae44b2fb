"""A disk that is full, and a limit on the size of files.

A run of 24 steps saves every third. At a random step a file fills the small disk of the run folder (a tmpfs in its own
mount namespace) up to a random rest. In every third case, and where no disk can be mounted, the size of files is
limited at random instead, as by a quota. The run must end with exit code 1 and a message that names the cause, and the
newest checkpoint must be intact. After space is freed, the same command must end bitwise equal to an undisturbed run.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diffusion_lab.training import DiffusionModule
from diffusion_lab.training.checkpoint_io import newest_good
from tests.faults.case import Case, Outcome
from tests.faults.runs import STEPS, compare, ended, run_folder, train
from tests.faults.shared import straight

WORDS = ["sampler=loss_second_moment", "sampler.history_per_timestep=2"]
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
SAVE = 3  # steps between two saves
SIZE = 96 << 20  # bytes of the disk; the check before the start wants 50 MB


def cases(quick: bool) -> list[Case]:
    """20 disks, of which a third are limits on files."""
    selected = []
    for index in range(4 if quick else 21):
        kind = "limited files" if index % 3 == 2 else "full disks"
        name = f"{kind} {index:02d}"
        selected.append(Case(name, lambda folder, k=kind, n=name: full(folder, k, random.Random(n))))
    return selected


def full(folder: Path, kind: str, chance: random.Random) -> Outcome:
    """Fill the disk during a run, free space, continue, and compare."""
    outcome = Outcome()
    reference = straight(folder, "full_disk", WORDS)
    size = next(reference.glob("runs/*/checkpoints/last.ckpt")).stat().st_size
    step = chance.randint(SAVE, STEPS - 1)
    disk = folder / "disk"
    disk.mkdir()
    if kind == "limited files" or not mounted(disk, SIZE):
        kind = "limited files"
        patch = after_step(step, lambda: limit_files(chance.randint(size // 10, size - 1)))
    else:
        rest = chance.choice([0, chance.randint(0, 4096), chance.randint(4096, size)])
        patch = after_step(step, lambda: fill(disk, rest))
    outcome.counts[kind] = 1
    command = train(disk, WORDS, patch, logs=folder)
    if not command.done(outcome, 1):
        return outcome
    cause = "No space left" if kind == "full disks" else "File too large"
    outcome.expect(cause in command.output, f"the cause is not named: {command.output.strip()[-300:]}")
    run = run_folder(disk)
    good = newest_good(run / "checkpoints") if run else None
    saved = good[1]["global_step"] if good else 0
    # The save after this step may have failed; the one before must exist.
    outcome.expect(saved >= (step // SAVE) * SAVE - SAVE, f"step {saved} is saved, and it was at {step}: {disk}")
    outcome.expect(not list(disk.glob("runs/*/checkpoints/*.partial")), "half a checkpoint is left")
    (disk / "ballast").unlink(missing_ok=True)
    if train(disk, WORDS, logs=folder).done(outcome):
        compare(outcome, ended(reference), ended(disk), kind)
        if not outcome.wrong:
            outcome.counts["equal ends"] = 1
    return outcome


def after_step(step: int, act: Callable[[], object]) -> Callable[[], None]:
    """A patch that calls `act` after the step, before anything of that step is written."""

    def patch() -> None:
        original = DiffusionModule.end_batch

        def acting(self: DiffusionModule, *args: Any) -> None:
            if self.global_step == step:
                act()
            original(self, *args)

        DiffusionModule.end_batch = acting

    return patch


def mounted(disk: Path, size: int) -> bool:
    """Mount a small disk for this process and its children; False if that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS if os.geteuid() == 0 else CLONE_NEWNS | CLONE_NEWUSER) != 0:
        return False
    commands = [["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]]
    try:
        return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands)
    except OSError:
        return False


def fill(disk: Path, rest: int) -> None:
    """Leave `rest` bytes on the disk."""
    space = os.statvfs(disk)
    left = space.f_bavail * space.f_frsize - rest
    with (disk / "ballast").open("wb") as file:
        for size in [1 << 20] * (left >> 20) + [left & ((1 << 20) - 1)]:
            file.write(bytes(size))


def limit_files(size: int) -> None:
    """Limit the size of files that this process writes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
