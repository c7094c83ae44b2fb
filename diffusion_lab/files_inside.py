"""Reading a file of a folder that may come from anybody: a regular file that lies in it, of bounded size.

`top` is the folder that the user named. It, and what leads to it, may be links; below it none is followed, because a
link that came with the folder could name any file of the reader. A FIFO or a device is never opened: it could wait for
ever, or never end.
"""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path
from typing import BinaryIO

LARGEST = 2**30  # bytes of a file that is read as a whole
_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a FIFO", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}


class NotInside(OSError, ValueError):
    """A place holds no regular file of its folder, or too large a one; the message says which. For a reader that
    tolerates missing files it is an OSError like others."""


def open_inside(path: Path, top: Path | None = None, largest: int | None = LARGEST) -> BinaryIO:
    """Open a regular file below `top` for reading.

    Args:
        path: the file.
        top: the folder that the user named; None: the file's own folder.
        largest: most bytes that the file may have; None: as many as it has.

    Raises:
        NotInside: it is none, is reached through a link, lies outside of `top`, or is larger.
        OSError: it does not exist or cannot be read.
    """
    path = Path(path)
    top = path.parent if top is None else Path(top)
    *folders, name = below(path, top)
    place = os.open(top, _FLAGS | os.O_DIRECTORY)
    try:
        for folder in folders:
            _check(os.stat(folder, dir_fd=place, follow_symlinks=False), stat.S_IFDIR, path, folder)
            inner = os.open(folder, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        # Checked before it is opened as well, because opening a device can have effects.
        _check(os.stat(name, dir_fd=place, follow_symlinks=False), stat.S_IFREG, path, name)
        file = open(name, "rb", opener=partial(regular, dir_fd=place))
    finally:
        os.close(place)
    size = os.fstat(file.fileno()).st_size
    if largest is not None and size > largest:
        file.close()
        raise NotInside(f"{path} must have at most {largest:,} bytes, and has {size:,}")
    return file


def read_inside(path: Path, top: Path | None = None, largest: int | None = LARGEST) -> bytes:
    """The bytes of a regular file below `top`; arguments and errors are those of `open_inside`."""
    with open_inside(path, top, largest) as file:
        return file.read()


def regular(path: str, flags: int, dir_fd: int | None = None) -> int:
    """An opener for `open`, also for writing: it follows no link in the last component and never waits.

    Raises:
        NotInside: there is something, and it is not a regular file, or it would be written and has another name (a hard
            link), under which its content would change too.
    """
    writes = flags & (os.O_WRONLY | os.O_RDWR)
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY, 0o666, dir_fd=dir_fd)
    except OSError:
        status = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)  # raises if there is nothing
        _check(status, stat.S_IFREG, Path(path), Path(path).name)
        raise
    try:
        _check(status := os.fstat(descriptor), stat.S_IFREG, Path(path), Path(path).name)
        if writes and status.st_nlink > 1:
            more = f"is the same file as {status.st_nlink - 1} elsewhere (a hard link)"
            raise NotInside(f"{path} must be a file of its own, and {more}; replace it by a copy")
    except NotInside:
        os.close(descriptor)
        raise
    return descriptor


def below(path: Path, top: Path) -> tuple[str, ...]:
    """The names that lead from `top` to `path`, at least one.

    Raises:
        NotInside: `path` does not lie below `top`, as it is written.
    """
    parts = path.relative_to(top).parts if path.is_relative_to(top) else ()
    if not parts or ".." in parts:
        raise NotInside(f"{path} must lie in {top}, and leads outside of the folder")
    return parts


def _check(status: os.stat_result, kind: int, path: Path, part: str) -> None:
    found = stat.S_IFMT(status.st_mode)
    if found == kind:
        return
    what = "a file" if found == stat.S_IFREG else _KINDS.get(found, "a device")
    where = "" if part == path.name else f"{part} "
    more = ", which may lead outside of the folder" if found == stat.S_IFLNK else ""
    raise NotInside(f"{path} must be a regular file in its folder, and {where}is {what}{more}; replace it")
