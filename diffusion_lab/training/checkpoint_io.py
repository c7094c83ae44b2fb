"""Atomically written checkpoint files with a checksum.

    file = torch.save(...)  |  8 bytes "DLABSHA2"  |  32 bytes SHA-256 of the bytes of torch.save

A file is written beside its target, flushed to disk and moved over it, so a kill or a full disk leaves the previous
one. The checksum is verified at loading, because `torch.load` notices almost no flipped bit. It is computed in blocks,
so loading needs the memory of the tensors alone. Files are loaded with `weights_only=True` alone: a checkpoint holds
tensors and plain containers and can execute nothing.

The entry "format" is the version of the content, so that a later format is refused with its own sentence.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins.io import CheckpointIO
from torch import Tensor

from diffusion_lab.files import replacing
from diffusion_lab.files_inside import NotInside, open_inside
from diffusion_lab.held_folder import with_folders
from diffusion_lab.runs.names import CHECKPOINT, LAST, PREVIOUS
from diffusion_lab.training.checkpoint_content import wrong_entry
from diffusion_lab.training.finite import not_finite

FORMAT = 1
_MAGIC = b"DLABSHA2"
_TRAILER = len(_MAGIC) + 32
_ARCHIVE = b"PK\x03\x04"  # the first bytes of what `torch.save` writes; PyTorch maps nothing else
_BLOCK = 2**20  # bytes that are hashed at once: they stay in the processor's cache
_SCALARS = frozenset({bool, float, str, type(None)})
_INT_BITS = 64  # PyTorch's unpickler does not read integers of more than 2039 bits; longer ones than these are rare


class DamagedCheckpoint(ValueError):
    """The file is truncated, altered, or not a checkpoint of this library."""


class NewerCheckpoint(ValueError):
    """The file has a format that only a later version of this library can read."""


class NoneIntact(ValueError):
    """There are checkpoints, but none is usable.

    Args:
        faults: one sentence for each checkpoint, the newest first.
    """

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class VerifiedCheckpointIO(CheckpointIO):
    """Writes files atomically with a checksum, and verifies it when reading.

    Attributes:
        read: path and content of a checkpoint that is verified already: it is given out once, without reading it again.
    """

    read: tuple[Path, dict[str, Any]] | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        save(checkpoint, path)

    def load_checkpoint(
        self, path: str | Path, map_location: Any = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        read, self.read = self.read, None
        if read is not None and read[0] == Path(path) and map_location is None:
            return read[1]
        # Lightning passes no device: without the CPU as default, every process would load all tensors onto the first
        # GPU, and a machine without a GPU could not read the file. Loading a state moves it to its device.
        return load(path, map_location="cpu" if map_location is None else map_location)

    def remove_checkpoint(self, path: str | Path) -> None:
        Path(path).unlink(missing_ok=True)


def save(checkpoint: dict[str, Any], path: str | Path) -> None:
    """Write `checkpoint` to `path` atomically: if an error is raised, the old file is unchanged.

    Raises:
        OSError: the disk is full or read-only; no temporary file is left.
        TypeError: a value is neither a tensor nor a plain container, so it could not be loaded again.
    """
    path = with_folders(Path(path))
    buffer = io.BytesIO()
    torch.save({**checkpoint, "format": FORMAT}, buffer)
    data = buffer.getbuffer()
    if not is_plain(checkpoint):
        _refuse_unloadable(buffer, path)
    # One fixed name, so that a killed process leaves at most one stale file, which the next save replaces.
    with replacing(path, f"{path.name}.partial") as file:
        file.write(data)
        file.write(_MAGIC + hashlib.sha256(data).digest())
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(path.parent)


def load(path: str | Path, map_location: Any = None, top: Path | None = None, mapped: bool = False) -> dict[str, Any]:
    """Read a checkpoint and verify its checksum.

    Args:
        path: the file.
        map_location: device of the tensors.
        top: the folder that the user named, below which no link is followed; None: the file's own.
        mapped: whether a tensor on the CPU is a private view of the file, which takes memory where it is used: for a
            reader that needs a part of them and copies it. The file must not be overwritten meanwhile; `save` replaces
            files and never overwrites one.

    Raises:
        DamagedCheckpoint: the checksum is missing or wrong, the content is not plain data, or there is no regular
            file.
        NewerCheckpoint: the file is intact and has a later format.
        FileNotFoundError: there is no such file.
    """
    text = str(path)
    if "://" in text:
        raise DamagedCheckpoint(f"{text}: checkpoints are read from local files only; download it and check it first")
    try:
        with open_inside(Path(path), top, largest=None) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - _TRAILER, 0))
            trailer = file.read(_TRAILER)
            # Before the rest is read: a sparse file of any size takes no space in a folder from elsewhere.
            if size <= _TRAILER or trailer[: len(_MAGIC)] != _MAGIC:
                reason = "truncated, or not written by diffusion-lab; use an earlier checkpoint"
                raise DamagedCheckpoint(f"{path}: {reason}")
            if _sha256(file, size - _TRAILER) != trailer[len(_MAGIC) :]:
                raise DamagedCheckpoint(f"{path}: its checksum does not match its content; use an earlier checkpoint")
            content = _content(file, path, map_location, mapped)
    except NotInside as error:
        raise DamagedCheckpoint(f"{error}; use an earlier checkpoint") from error
    if not isinstance(content, dict):
        raise DamagedCheckpoint(f"{path}: holds no checkpoint; use an earlier one")
    if wrong := wrong_entry(content):
        raise DamagedCheckpoint(f"{path}: its entry {wrong} is nothing that a run writes; use an earlier one")
    version = content.get("format", FORMAT)
    if version > FORMAT:
        raise NewerCheckpoint(
            f"{path}: is of checkpoint format {version}, and this version of diffusion-lab reads formats up to "
            f"{FORMAT}; use the version that wrote it, or a later one"
        )
    return content


def _sha256(file: BinaryIO, size: int) -> bytes:
    """Of the first `size` bytes."""
    hasher, block = hashlib.sha256(), memoryview(bytearray(_BLOCK))
    file.seek(0)
    while size > 0 and (count := file.readinto(block[: min(size, _BLOCK)])):  # type: ignore[attr-defined]
        hasher.update(block[:count])
        size -= count
    return hasher.digest()


def _content(file: BinaryIO, path: str | Path, map_location: Any, mapped: bool) -> Any:
    """What the file holds; the trailer behind it does not disturb the reader of archives."""
    file.seek(0)
    mapped = mapped and file.read(len(_ARCHIVE)) == _ARCHIVE
    file.seek(0)
    try:
        # PyTorch maps files by their path, and this one must be the file that was checked.
        source = f"/dev/fd/{file.fileno()}" if mapped else file
        return torch.load(source, map_location=map_location, weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise DamagedCheckpoint(f"{path}: holds more than tensors and plain containers: {error}") from error
    except (AttributeError, EOFError, LookupError, OverflowError, TypeError, ValueError, struct.error) as error:
        raise DamagedCheckpoint(f"{path}: cannot be loaded ({error!r}); use an earlier checkpoint") from error


def load_finite(path: Path, top: Path | None = None, mapped: bool = False) -> dict[str, Any]:
    """The content of a checkpoint that is intact and whose weights, averages and states are finite, on the CPU.

    Args:
        path, top, mapped: as in `load`.

    Raises:
        DamagedCheckpoint: it is not; also what `load` raises.
    """
    content = load(path, "cpu", top, mapped)
    try:
        name = _poisoned(content)
    except (RecursionError, RuntimeError) as error:  # nested too deeply, or one number that claims to be many
        reason = " ".join(str(error).split())
        raise DamagedCheckpoint(f"{path}: it cannot be checked ({reason}); use an earlier checkpoint") from error
    if name:
        raise DamagedCheckpoint(f"{path}: {name} is not finite; use an earlier checkpoint")
    return content


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def newest_good(
    folder: str | Path, say: Callable[[str], object] = _to_stderr, top: Path | None = None, mapped: bool = False
) -> tuple[Path, dict[str, Any]] | None:
    """The newest usable checkpoint among *.ckpt in `folder`, with its content on the CPU; None if there are no files.

    A checkpoint is usable if it is intact and finite. `last.ckpt` is read first, then `previous.ckpt`, then the
    numbered ones from the newest on.

    Args:
        folder: folder of the checkpoints.
        say: called with a line of text if newer files were not usable.
        top, mapped: as in `load`.

    Raises:
        NewerCheckpoint: the newest intact file has a later format; using an earlier file would discard its progress.
        NoneIntact: there are files, but none is usable.
    """
    folder, faults = Path(folder), list[str]()
    numbered = sorted(folder.glob(f"step-*{CHECKPOINT}"), reverse=True)
    for path in [folder / LAST, folder / PREVIOUS, *numbered]:
        try:
            content = load_finite(path, top, mapped)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except DamagedCheckpoint as error:
            faults.append(str(error))
            continue
        if faults:
            passed = "; ".join(fault.rpartition("; use")[0] or fault for fault in faults)
            say(f"passed over {passed}. Using {path.name} of step {content.get('global_step')}")
        return path, content
    if faults:
        raise NoneIntact(faults)
    return None


def _poisoned(content: dict[str, Any]) -> str | None:
    """The first entry of weights, averages and the other callbacks' state that is not finite; None if all are."""
    callbacks = {key: value for key, value in content.get("callbacks", {}).items() if key != "RunRecord"}
    state = {"state_dict": content.get("state_dict", {}), "callbacks": callbacks}
    return not_finite(state, content.get("may_be_infinite", ()))


def is_plain(tree: Any) -> bool:
    """Whether all values are of types that `weights_only=True` loads again; subclasses and attributes do not count.

    Loading a checkpoint to find out takes more than half the time of its write. False is the safe answer: the
    checkpoint is then loaded. It is the answer for empty bytes, which PyTorch's unpickler does not read, and for
    containers that hold themselves, of which it reads some.
    """
    return _is_plain(tree, set())


def _is_plain(value: Any, around: set[int]) -> bool:
    """`around`: the ids of the containers that hold it."""
    kind = type(value)
    if kind is Tensor:
        return value.layout is torch.strided and not (value.is_quantized or value.is_nested or vars(value))
    if kind is int:
        return value.bit_length() <= _INT_BITS
    if kind is bytes:
        return len(value) > 0
    if kind not in (dict, OrderedDict, list, tuple):
        return kind in _SCALARS
    if id(value) in around:
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else [*value]
    parts += vars(value).values() if kind is OrderedDict else ()  # the `_metadata` of a state dict
    around = around | {id(value)}
    return all(_is_plain(part, around) for part in parts)


def _refuse_unloadable(buffer: io.BytesIO, path: Path) -> None:
    """Raise TypeError if the checkpoint cannot be loaded, before the old file is replaced."""
    buffer.seek(0)
    try:
        torch.load(buffer, map_location="meta", weights_only=True)
    except pickle.UnpicklingError as error:
        raise TypeError(f"{path.name} could not be loaded again, so it was not written: {error}") from error


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, on systems that can open a folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
