"""One process at a time, where several would make the same file of the folder of caches."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diffusion_lab.files_inside import regular
from diffusion_lab.progress import waiting


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process of this machine at a time make `path`, while the others wait. The lock, a file beside it, ends
    with its process. Where the folder cannot be written to, nobody waits."""
    with ExitStack() as held:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context(open(path.with_suffix(".held"), "wb", opener=regular))
            with waiting(f"waiting for another process, which makes {path.name}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
