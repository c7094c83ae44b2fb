"""Checkpoint files that are whole or not there.

    file = torch.save(...)  |  8 bytes "DLABSHA2"  |  32 bytes SHA-256 of what stands before

A file is written beside its target, flushed to disk and moved over it, so a kill or a full disk leaves the previous
one. The checksum is verified at loading, because `torch.load` notices almost no flipped bit. Files are loaded with
`weights_only=True` alone: a checkpoint holds tensors and plain containers and can execute nothing.

Its entry "format" counts the changes of what stands in it:

    1  (or no such entry) written after the evaluation that its step had
    2  written before it, with what is owed
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import CheckpointIO

from diffusion_lab.runs.names import CHECKPOINT, LAST, PREVIOUS
from diffusion_lab.training.finite import not_finite

FORMAT = 2
_MAGIC = b"DLABSHA2"
_TRAILER = len(_MAGIC) + 32


class DamagedCheckpoint(ValueError):
    """The file is truncated, altered, or not a checkpoint of this library."""


class NewerCheckpoint(ValueError):
    """The file is of a format that only a later version of this library knows."""


class NoneIntact(ValueError):
    """There are checkpoints, and not one that can be used.

    Args:
        faults: one sentence for each, the newest first.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class VerifiedCheckpointIO(CheckpointIO):
    """Writes atomically with a checksum; reads what is intact."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        save(checkpoint, path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        # Lightning names no device: each process of several would otherwise fill the first GPU with all tensors of the
        # file, and a machine without a GPU could not read it. What takes a state over puts it where it belongs.
        return load(path, map_location="cpu" if map_location is None else map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def save(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Write `checkpoint` to `path`: afterwards the file is whole, or the old one stands and an error is raised.

    Raises:
        OSError: the disk is full or read-only; the previous file is intact and no temporary file is left.
        TypeError: something in it is not a tensor or a plain container, so it could not be loaded again.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save({**checkpoint, "format": FORMAT}, buffer)
    data = buffer.getbuffer()
    _refuse_unloadable(buffer, path)
    # One fixed name, so that a killed process leaves at most one stale file, which the next save replaces.
    temporary = path.with_name(path.name + ".partial")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.write(_MAGIC + hashlib.sha256(data).digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def load(path: str | Path, map_location: Any = None) -> dict[str, Any]:
    """Read a checkpoint and verify its checksum.

    Raises:
        DamagedCheckpoint: the checksum is missing or wrong, or the content is not plain data.
        NewerCheckpoint: it is intact and of a later format.
        FileNotFoundError: there is no such file.
    """
    text = str(path)
    if "://" in text:
        raise DamagedCheckpoint(f"{text}: checkpoints are read from local files only; download it and check it first")
    data = Path(path).read_bytes()
    body, trailer = memoryview(data)[:-_TRAILER], data[-_TRAILER:]
    if len(data) <= _TRAILER or trailer[: len(_MAGIC)] != _MAGIC:
        raise DamagedCheckpoint(f"{path}: truncated, or not written by diffusion-lab; use an earlier checkpoint")
    if hashlib.sha256(body).digest() != trailer[len(_MAGIC) :]:
        raise DamagedCheckpoint(f"{path}: its checksum does not match its content; use an earlier checkpoint")
    try:
        content = torch.load(io.BytesIO(body), map_location=map_location, weights_only=True)
    except pickle.UnpicklingError as error:
        raise DamagedCheckpoint(f"{path}: holds more than tensors and plain containers: {error}") from error
    if not isinstance(content, dict):
        raise DamagedCheckpoint(f"{path}: holds no checkpoint; use an earlier one")
    version = content.get("format", 1)
    if version > FORMAT:
        raise NewerCheckpoint(
            f"{path}: is of checkpoint format {version}, and this version of diffusion-lab reads formats up to "
            f"{FORMAT}; use the version that wrote it, or a later one"
        )
    return content


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def newest_good(folder: str | Path, say: Callable[[str], object] = _to_stderr) -> tuple[Path, dict[str, Any]] | None:
    """The newest usable checkpoint among *.ckpt in `folder`, with its content on the CPU; None where there is none.

    Usable is what is intact and finite. The usual case reads one file: `last.ckpt` first, then `previous.ckpt`, then
    the numbered snapshots from the newest on.

    Args:
        folder: where the checkpoints lie.
        say: is given a line when newer files had to be passed over.

    Raises:
        NewerCheckpoint: the newest intact one is of a later format; an earlier one would undo that version's work.
        NoneIntact: there are files, and none is usable.
    """
    folder, faults = Path(folder), list[str]()
    snapshots = sorted(folder.glob(f"step-*{CHECKPOINT}"), reverse=True)
    for path in [folder / LAST, folder / PREVIOUS, *snapshots]:
        try:
            content = load(path, map_location="cpu")
        except FileNotFoundError:
            continue
        except DamagedCheckpoint as error:
            faults.append(str(error))
            continue
        if name := _poisoned(content):
            faults.append(f"{path}: {name} is not finite; use an earlier checkpoint")
            continue
        if faults:
            passed = "; ".join(fault.rpartition("; use")[0] or fault for fault in faults)
            say(f"passed over {passed}. Using {path.name} of step {content.get('global_step')}")
        return path, content
    if faults:
        raise NoneIntact(faults)
    return None


def _poisoned(content: dict[str, Any]) -> str | None:
    """The first number that is not finite in weights, averages and the other callbacks' state; None if all are."""
    callbacks = {key: value for key, value in content.get("callbacks", {}).items() if key != "RunRecord"}
    state = {"state_dict": content.get("state_dict", {}), "callbacks": callbacks}
    return not_finite(state, content.get("may_be_infinite", ()))


def _refuse_unloadable(buffer: io.BytesIO, path: Path) -> None:
    """Loading is tried before the old file is replaced: unloadable state must not be found out at resume."""
    buffer.seek(0)
    try:
        torch.load(buffer, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as error:
        raise TypeError(f"{path.name} could not be loaded again, so it was not written: {error}") from error


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
