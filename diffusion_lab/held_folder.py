"""Folders that a command holds open while it works in them, so that it notices when one is moved or removed.

Files are written by their paths. If a run folder was moved, writing to its old path would make a second folder, without
the run's record, and the steps from there on would be in neither of the two. What writes into a folder that may be held
therefore asks `current` for the path: it is the same path, or that in the folder's new place, or an error.
"""

from __future__ import annotations

import fcntl
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diffusion_lab.failure import Failure

DELETED = " (deleted)"  # Linux appends it to the name of a removed folder


class FolderMoved(Failure):
    """A folder was moved or removed while a command worked in it."""

    status = "interrupted"  # of a run that it ends


class _Held:
    """A folder that is open; `moved` is set once it is found in another place."""

    def __init__(self, folder: Path, copy: str) -> None:
        self.folder, self.copy = os.path.abspath(folder), copy
        self.moved = False
        self._descriptor = os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
        self._name = _name(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def inside(self, path: str | Path) -> str | None:
        """The path below the folder, "" for the folder itself; None if it is not in it."""
        full = os.path.abspath(path)
        return full[len(self.folder) + 1 :] if full == self.folder or full.startswith(self.folder + os.sep) else None

    def place(self) -> str:
        """Where the folder is now.

        Raises:
            FolderMoved: it was removed, or moved to where it cannot be found.
        """
        if self._is_at(self.folder):
            return self.folder
        name = _name(self._descriptor)
        if name and name == self._name and os.path.isdir(self.folder):
            return self.folder  # on some file systems a folder gets another number
        if name and self._is_at(name):
            self.moved = True
            return name
        raise self._gone()

    def make(self, below: Path) -> None:
        """Make a folder below the open one, and those between. By a path, it could be made again where the folder was,
        if that is removed at this moment.

        Raises:
            FolderMoved: the open folder was removed.
        """
        for one in reversed([below, *below.parents][:-1]):
            try:
                os.mkdir(one, dir_fd=self._descriptor)
            except FileExistsError:
                pass
            except FileNotFoundError:
                raise self._gone() from None

    def _gone(self) -> FolderMoved:
        return FolderMoved(
            f"{shell_path(self.folder)} was removed, or moved to another file system, while it was in use, and nothing "
            f"more is written{self.copy}"
        )

    def _is_at(self, path: str) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:  # such as a file server that does not answer; writing then gives its own error
            return path == self.folder


_held: list[_Held] = []


@contextmanager
def hold(folder: Path, copy: str = "") -> Iterator[None]:
    """Hold a folder inside the block; nothing is held if it does not exist.

    Args:
        folder: the folder.
        copy: end of the message if the folder is gone: what to do with a copy of it.

    Raises:
        FolderMoved: the folder is gone, when something is written to it or at the end; or it was moved, at the end.
    """
    if not os.path.isdir(folder):
        yield
        return
    held = _Held(folder, copy)
    _held.append(held)
    try:
        try:
            yield
        except FolderMoved:
            raise
        except Exception as error:
            place = held.place()  # a folder that is gone is why, and its log would make it again
            if place != held.folder and isinstance(error, OSError):
                raise FolderMoved(moved(held.folder, place)) from error
            raise
        if (place := held.place()) != held.folder:
            raise FolderMoved(moved(held.folder, place))
    finally:
        _held.remove(held)
        held.close()


def current(path: Path) -> Path:
    """`path`, or the path to the same file if the held folder that contains it was moved.

    Raises:
        FolderMoved: that folder is gone.
    """
    for held in reversed(_held):
        inside = held.inside(path)
        if inside is not None:
            place = held.place()
            return path if place == held.folder else Path(place, inside)
    return path


def with_folders(path: Path) -> Path:
    """`current(path)`, below folders that exist: missing ones are made, but neither a held folder nor what is above it.

    Raises:
        FolderMoved: the held folder that contains `path` is gone.
        OSError: a folder cannot be made.
    """
    for held in reversed(_held):
        inside = held.inside(path)
        if inside is not None:
            place = held.place()
            held.make(Path(inside).parent)
            return path if place == held.folder else Path(place, inside)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def was_moved(path: Path) -> bool:
    """Whether an earlier call of `current` found the held folder that contains `path` in another place."""
    return any(held.moved for held in _held if held.inside(path) is not None)


def is_elsewhere(path: Path) -> bool:
    """Whether `path` is in a held folder that was moved or is gone."""
    try:
        return current(path) != path
    except FolderMoved:
        return True


def moved(folder: str | Path, place: str | Path, rest: str = "what was written since then is there") -> str:
    """The message for a folder that was moved to `place`."""
    return f"{shell_path(folder)} was moved to {shell_path(place)} while it was in use; {rest}"


def shell_path(path: str | Path) -> str:
    """A path as it is typed here, quoted for a shell."""
    return shlex.quote(as_typed(path))


def as_typed(path: str | Path) -> str:
    """The path from the working folder if it lies there, else the whole path."""
    full, here = os.path.abspath(path), os.getcwd()
    return os.path.relpath(full, here) if full.startswith(here + os.sep) else full


def _name(descriptor: int) -> str | None:
    """The path of an open folder; None if it was removed or the system does not tell."""
    try:
        if (get_path := getattr(fcntl, "F_GETPATH", None)) is not None:  # macOS
            return os.fsdecode(fcntl.fcntl(descriptor, get_path, bytes(1024)).partition(b"\0")[0])
        name = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return None if name.endswith(DELETED) and not os.path.isdir(name) else name
