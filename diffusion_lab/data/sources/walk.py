"""The images below a folder, each real file once, and in one line what is left out.

Links are followed, because data sets are often made of them: a folder is searched under its own name, else under the
first link to it, and never from inside itself. A file that is there already is not taken again under a link.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

EXTENSIONS = frozenset(".png .jpg .jpeg .jpe .jfif .bmp .gif .webp .tif .tiff .ppm .pgm .pbm .pnm .tga .avif".split())
SYSTEM = frozenset(["@eaDir", "__MACOSX"])  # thumbnails of a Synology, resource forks of a Mac
SHOWN = 3  # links of folders that are named
LONGEST = 12  # characters of a suffix that is named
Identity = tuple[int, int]


class Found(NamedTuple):
    """What is below a folder.

    Attributes:
        names: the images, sorted by folder; strings, because a million Path objects take a minute.
        left_out: reason -> number of files that are not images, or hidden, or there already.
        links: links to folders that are searched already.
    """

    names: list[str]
    left_out: Counter[str]
    links: list[str]

    def sentence(self) -> str:
        """ "left out: 12 files: 8 .txt, 3 in @eaDir, 1 hidden"; "" if nothing was."""
        words = [counted(self.left_out)] if self.left_out else []
        if self.links:
            more = ", .." if len(self.links) > SHOWN else ""
            named = ", ".join(ascii(name)[1:-1] for name in self.links[:SHOWN])
            links = "1 link to a folder" if len(self.links) == 1 else f"{len(self.links)} links to folders"
            words.append(f"{links} searched already ({named}{more})")
        return f"left out: {'; '.join(words)}" if words else ""


def counted(left_out: Counter[str]) -> str:
    """ "12 files: 8 .txt, 3 in @eaDir, 1 hidden", most frequent first."""
    total = left_out.total()
    listed = ", ".join(f"{n} {reason}" for reason, n in left_out.most_common())
    return f"{total} {'file' if total == 1 else 'files'}: {listed}"


def reason(name: str) -> str:
    """Why a file is left out, from its path with slashes; "" for an image."""
    *folders, file = name.split("/")
    system = next((part for part in folders if part in SYSTEM), None)
    if system is not None:
        return f"in {system}"
    if any(is_hidden(part) for part in (*folders, file)):
        return "hidden"
    suffix = os.path.splitext(file)[1].lower()
    if suffix in EXTENSIONS:
        return ""
    if not suffix:
        return "without a suffix"
    return suffix if len(suffix) <= LONGEST and suffix.isprintable() else "of other kinds"


def is_hidden(part: str) -> bool:
    """Whether a part of a path is the name of a hidden file or folder."""
    return part.startswith(".") and bool(part.strip("."))


def find_images(root: Path, within: Sequence[str] = ()) -> Found:
    """The images below `root`, an existing folder, or in its folders `within`."""
    search = _Search(root, within)
    search.run()
    search.drop_linked_twice()
    # As by their parts: no name has a zero byte, which sorts before all others.
    return Found(sorted(search.names, key=lambda name: name.replace("/", "\0")), search.left_out, sorted(search.links))


def subfolders(root: Path) -> list[str]:
    """Sorted names of the folders in `root` in which `find_images` searches; empty if `root` does not exist."""
    if not root.is_dir():
        return []
    real, targets, names = root.resolve(), set(), []
    for name in sorted(path.name for path in root.iterdir() if path.is_dir()):
        if is_hidden(name) or name in SYSTEM:
            continue
        if (root / name).is_symlink():
            target = (root / name).resolve()
            if target in targets or _is_searched(target, real):
                continue
            targets.add(target)
        names.append(name)
    return names


def _is_searched(target: Path, root: Path) -> bool:
    """Whether the search of `root` comes to a folder without following a link to it, or is inside it."""
    if not target.is_relative_to(root):
        return root.is_relative_to(target)
    return not any(is_hidden(part) or part in SYSTEM for part in target.relative_to(root).parts)


class _Search:
    """A walk through the folders: first those that are there themselves, then those that are linked, by name."""

    def __init__(self, root: Path, within: Sequence[str]) -> None:
        self.root, self.within = str(root), within
        self.names: list[str] = []
        self.linked: set[str] = set()  # those of the names that are links
        self.left_out: Counter[str] = Counter()
        self.links: list[str] = []
        self.waiting: list[str] = []  # links to folders
        real = root.resolve()
        self.seen = {identity for folder in real.parents if (identity := _identity(str(folder)))}

    def run(self) -> None:
        self._folder("")
        while self.waiting:
            self.waiting.sort(reverse=True)
            self._folder(self.waiting.pop())

    def _folder(self, start: str) -> None:
        """Search a folder and what is in it, except links to folders, which wait."""
        stack = [start]
        while stack:
            below = stack.pop()
            path = f"{self.root}/{below}" if below else self.root
            identity = _identity(path)
            if identity is None:  # it has just been removed
                continue
            if identity in self.seen:
                self.links.append(below)
                continue
            self.seen.add(identity)
            for entry in _entries(path):
                name = f"{below}/{entry.name}" if below else entry.name
                if not below and self.within and entry.name not in self.within:
                    continue
                if _is_plain_image(entry):  # as almost all of a million files are
                    self.names.append(name)
                elif not _is_folder(entry):
                    self._file(name, entry)
                elif is_hidden(entry.name):
                    self.left_out["hidden"] += 1
                elif entry.name in SYSTEM:
                    self.left_out[f"in {entry.name}"] += sum(len(files) for _, _, files in os.walk(entry.path))
                else:
                    (self.waiting if entry.is_symlink() else stack).append(name)

    def _file(self, name: str, entry: os.DirEntry[str]) -> None:
        why = reason(entry.name)
        if why:
            self.left_out[why] += 1
            return
        self.names.append(name)
        if entry.is_symlink():
            self.linked.add(name)

    def drop_linked_twice(self) -> None:
        """Leave out links to files that are there already. A million files are looked at only if there are links."""
        if not self.linked:
            return
        kept = [name for name in self.names if name not in self.linked]
        there = {_identity(f"{self.root}/{name}") for name in kept}
        for name in sorted(self.linked):
            identity = _identity(f"{self.root}/{name}")
            if identity is not None and identity in there:  # None: a broken link, which the scan reports
                self.left_out["linked twice"] += 1
                continue
            there.add(identity)
            kept.append(name)
        self.names = kept


def _entries(path: str) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:  # a folder that may not be read
        return []


def _is_plain_image(entry: os.DirEntry[str]) -> bool:
    """Whether it is a file, no link, for which there is certainly no `reason`."""
    name = entry.name
    ending = name[name.rfind(".") :].lower()
    return ending in EXTENSIONS and name[0] != "." and entry.is_file(follow_symlinks=False)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, which is reported as a file
        return False


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
