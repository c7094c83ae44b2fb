"""The folder of what can be computed again: scans of image folders, decoded images, reference statistics, compositions.

    $DIFFUSION_LAB_CACHE, or else diffusion-lab in $XDG_CACHE_HOME, or else ~/.cache/diffusion-lab

A container may run as a user without HOME and without an entry in the list of users. Then `~` means nothing, and
Python, Matplotlib, PyTorch and W&B fail in ways of their own. `home_folder` gives such a process a home, once.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diffusion_lab.files_inside import regular
from diffusion_lab.progress import waiting

VARIABLE = "DIFFUSION_LAB_CACHE"
log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """The folder, which is made by what writes to it."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or home_folder() / ".cache") / "diffusion-lab"


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


def home_folder() -> Path:
    """The user's home; without one, a temporary folder of the user's own, which becomes HOME of this process and of
    those that it starts."""
    with suppress(RuntimeError):  # neither HOME nor an entry for the user
        return Path.home()
    place = Path(tempfile.gettempdir(), f"diffusion-lab-{os.getuid()}")
    with suppress(OSError):
        place.mkdir(mode=0o700)
    if not _is_own(place):
        place = Path(tempfile.mkdtemp(prefix="diffusion-lab-"))
    os.environ["HOME"] = str(place)
    os.environ.setdefault("USER", f"uid-{os.getuid()}")  # libraries ask for a name as well
    log.warning("this user has no home folder, so %s is used; set HOME, or %s for the caches", place, VARIABLE)
    return place


def _is_own(folder: Path) -> bool:
    """Whether it is a folder, no link, of this user alone: others may have prepared one of this name."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
