"""Atomic writing of files: a reader finds the old file or the complete new one. And reading that tolerates damage."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, BinaryIO

from diffusion_lab.files_inside import NotInside, read_inside
from diffusion_lab.held_folder import with_folders

DEPTH = 64  # of nested objects and lists; our own files have fewer than 20
_BITS = 2**63
# Shorter integers have at most 64 bits; from their first digit on, as others are slow.
_LONG = re.compile(r"(?<!\d)\d{19}")
_NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity')  # and texts, inside which these are words


@contextmanager
def replacing(path: Path, beside: str | None = None) -> Iterator[BinaryIO]:
    """A new empty file, which replaces `path` when the block ends; if the block raises, it is removed.

    The temporary file is made in the same folder and must not exist before: nothing that somebody has put in its place
    is opened or followed.

    Args:
        path: the file to replace, in an existing folder.
        beside: name of the temporary file, for a file of which a killed process should leave at most one; what is
            there is removed first. None: a name that nobody can know.

    Raises:
        OSError: it cannot be written; `path` is unchanged. `NotInside` if a folder is in its place.
    """
    refuse_folder(path)
    temporary = path.with_name(beside or f".{path.name}.{secrets.token_hex(4)}")
    if beside is not None:
        temporary.unlink(missing_ok=True)
    with open(temporary, "xb", opener=_exclusively) as file:
        try:
            yield file
            file.flush()
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def refuse_folder(path: Path) -> None:
    """Raise NotInside if a folder lies where a file will be written."""
    if os.path.isdir(path) and not os.path.islink(path):
        raise NotInside(f"{path} must be a file, and is a folder; remove it, or use another place")


def _exclusively(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically; missing folders are made, but not one that is held and gone.

    Raises:
        FolderMoved: `path` is in a held folder that is gone.
        OSError: `path` cannot be written to; the old file is unchanged and no temporary file is left.
    """
    path = with_folders(path)
    with replacing(path) as file:
        file.write(content)


def read_text(path: Path) -> str:
    """The text of a user's file: UTF-8, with or without the byte order mark that editors on Windows write.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it has another encoding.
    """
    return path.read_text(encoding="utf-8-sig")


def parse(text: str) -> Any:
    """A JSON text. Integers beyond 64 bits become floats, infinite ones where no float is as large.

    Raises:
        ValueError: it is none, or is nested more than `DEPTH` deep, which recursive code need not survive.
    """
    try:
        content = decoded(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text.count("[") + text.count("{") > DEPTH and deeper(content):
        raise ValueError(f"it is nested more than {DEPTH} deep")
    return content


def decoded(text: str) -> Any:
    """A JSON text with its integers as `parse` reads them."""
    return json.loads(text, parse_int=_integer if _LONG.search(text) else None)


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) <= 20 else float(digits)
    return value if -_BITS <= value < 2 * _BITS else float(value)


def is_count(value: Any) -> bool:
    """Whether a value of a file is an integer in [0, 2**63), such as a step or a number of bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _BITS


def deeper(content: Any) -> bool:
    """Whether plain containers are nested more than `DEPTH` deep."""
    level = [content] if isinstance(content, dict | list | tuple) else []
    depth = DEPTH
    while level and depth:
        # Each container once: a pickle, unlike JSON, may hold one many times.
        level = list({id(inner): inner for one in level for inner in _inside(one)}.values())
        depth -= 1
    return bool(level)


def _inside(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value
    return [one for one in inner if isinstance(one, dict | list | tuple)]


def read_object(path: Path, top: Path | None = None) -> dict[str, Any] | None:
    """The JSON object in a regular file below `top`, by default in any folder; None if the file does not exist or
    holds anything else."""
    try:
        return object_in(path, top)
    except (OSError, ValueError):
        return None


def object_in(path: Path, top: Path | None = None) -> dict[str, Any]:
    """As `read_object`.

    Raises:
        OSError: there is no such file, or it cannot be read; `NotInside` if it is no regular file below `top`.
        ValueError: it holds anything but a JSON object.
    """
    content = parse(read_inside(path, top).decode())
    if not isinstance(content, dict):
        raise ValueError("it is not an object")
    return content


def json_text(content: Any, infinity: str = "null", **layout: Any) -> str:
    """`content`, plain values only, as JSON that any program reads: JSON has no NaN, which is written as null.

    Args:
        content: the values.
        infinity: what an infinite number is written as: null; or 1e999, a number of JSON that is read back as infinite.
        layout: as of `json.dumps`.

    Raises:
        TypeError: a value is not plain.
    """
    text = json.dumps(content, **layout)
    if "NaN" not in text and "Infinity" not in text:
        return text
    return _NUMBERS.sub(lambda found: _of_json(found[0], infinity), text)


def _of_json(token: str, infinity: str) -> str:
    """A token of what `json.dumps` writes: texts stay, and so does the sign of a number."""
    if token[0] == '"':
        return token
    return "null" if token == "NaN" or infinity == "null" else token.replace("Infinity", infinity)


def write_json(path: Path, content: Any, infinity: str = "null") -> None:
    """Write `content`, plain values only, to `path` as `json_text`.

    Raises:
        OSError: as `write_whole`.
        TypeError: a value is not plain.
    """
    write_whole(path, (json_text(content, infinity, indent=1) + "\n").encode())


def file_sha256(path: Path) -> str:
    """sha256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
