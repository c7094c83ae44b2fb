"""A zip archive whose images are read one at a time into memory; nothing of it is ever written to the disk."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from diffusion_lab.data.sources.walk import reason

LABELS = "dataset.json"
MOST_BYTES = {False: 64 * 2**20, True: 512 * 2**20}  # of an image, of LABELS: a zip bomb is refused unread
ENCRYPTED = 1  # bit of a member's flags


class Archive:
    """Reads members of a zip archive, in threads and in forked or spawned processes.

    Attributes:
        images: name -> member, sorted by name; other files, hidden ones and folders are left out.
        left_out: reason -> number of files that are left out, without LABELS.

    Raises:
        ValueError: it is not a zip archive, or two images have one name.
        FileNotFoundError: there is none.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(
                f"path={path} must be a zip archive of images, such as EDM's dataset_tool.py writes; there is none at "
                f"{path.absolute()}"
            )
        self.path, self._open = path, (0, None)
        try:
            members = self._zip().infolist()
        except (BadZipFile, OSError, NotImplementedError) as error:
            raise ValueError(f"path={path} must be a zip archive, and it is not: {error}; make it again") from None
        files = [member for member in members if not member.is_dir()]
        images = [member for member in files if not reason(member.filename)]
        self.left_out = Counter(why for file in files if file.filename != LABELS and (why := reason(file.filename)))
        twice = [name for name, n in Counter(member.filename for member in images).items() if n > 1]
        if twice:
            raise ValueError(f"path={path} must hold every name once, not {twice[0]} twice; make it again")
        self.images = {member.filename: member for member in sorted(images, key=lambda m: m.filename.split("/"))}

    def read(self, name: str) -> bytes:
        """The content of a member.

        Raises:
            KeyError: there is none.
            ValueError: it is encrypted, damaged, or larger than any image.
        """
        archive = self._zip()
        if name not in archive.NameToInfo:
            raise KeyError(name)
        member = archive.NameToInfo[name]
        most = MOST_BYTES[name == LABELS]
        if member.flag_bits & ENCRYPTED:
            raise ValueError("encrypted")
        if member.file_size > most:  # zipfile reads no more than the stated size
            raise ValueError(f"{member.file_size} bytes unpacked, more than {most}")
        try:
            return archive.read(member)
        except (BadZipFile, NotImplementedError, EOFError) as error:
            raise ValueError(str(error)) from None

    def _zip(self) -> ZipFile:
        # Forked processes would share the position in an open file.
        if self._open[0] != os.getpid():
            self._open = (os.getpid(), ZipFile(self.path))
        return self._open[1]  # type: ignore[return-value]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": (0, None)}
