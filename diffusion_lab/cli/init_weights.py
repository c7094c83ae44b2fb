"""The trained weights that `init_from` names, and the values that identify them.

    init_from=DIR[:last | :step-00001000][:ema | :raw | :0.9999 | :std-0.08]    a checkpoint of a run
    init_from=FILE.pt | FILE.pth | FILE.safetensors                                 a file of tensors by name
    init_from=FOLDER of diffusers' save_pretrained                      its file of tensors

A run is a function of (config, seed, step), and a path is not what its weights are. In the hash of a run `init_from` is
therefore replaced by `init_identity`, a checksum of the file: a changed file is another run, a moved one is the same,
and a name needs no tensor. The record has it too, beside what was read: the hash of the source's configuration, the
step, which weights, and a digest of their names and values.

Only tensors and plain values are read here. `cli.init_from` checks the folder as `cli.load` does before the weights are
used.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from diffusion_lab.cli.averages import average_of
from diffusion_lab.cli.errors import ConfigError, MissingHere, describe, nearest
from diffusion_lab.files import file_sha256
from diffusion_lab.files_inside import open_inside
from diffusion_lab.runs.names import AVERAGES, CHECKPOINT, CHECKPOINTS, LAST, PREVIOUS, TENSORS, step_of
from diffusion_lab.runs.record import read_record

if TYPE_CHECKING:
    from torch import Tensor

FILES = (".pt", ".pth", ".safetensors")
OF_DIFFUSERS = "diffusion_pytorch_model.safetensors"  # as its save_pretrained names it
PREFIX = "denoiser."  # of the model's tensors in a checkpoint
TRAILER = 32  # bytes at the end of a checkpoint, the SHA-256 of its content
BESIDE = ("source", "not_loaded")  # recorded beside the identity: where it was, and the tensors that do not fit
HOW = "use DIR, DIR:step-00001000, DIR:raw or FILE.safetensors"
WORDS = re.compile(r"(?P<place>.+?)(:(?P<checkpoint>last|step-\d+))?(:(?P<weights>ema|raw|0?\.\d+|std-[\d.]+))?")


class InitWeights(NamedTuple):
    """Trained weights.

    Attributes:
        tensors: by name; of a run, those of its denoiser.
        identity: {"config_hash", "step", "weights", "digest", "checksum"}; the first two are None for a file.
        saved: the configuration in the checkpoint; None for a file.
    """

    tensors: dict[str, Tensor]
    identity: dict[str, Any]
    saved: Any


class InitFrom(NamedTuple):
    """What the text of `init_from` names: a folder or file, which checkpoint, and "ema", "raw" or an average."""

    place: Path
    checkpoint: str
    weights: str

    @property
    def is_file(self) -> bool:
        """Whether it is a file of tensors."""
        return self.place.suffix in FILES and not self.place.is_dir()


def parse_init_from(text: str) -> InitFrom:
    """The parts of `init_from`.

    Raises:
        ConfigError: it cannot be read, or names a checkpoint or an average of a file.
    """
    match = WORDS.fullmatch(text)
    if match is None:
        raise ConfigError(f"init_from={text!r} must name a run or a file of weights; {HOW}")
    found = named_weights(text)
    if os.path.isfile(found.place / OF_DIFFUSERS):
        found = found._replace(place=found.place / OF_DIFFUSERS)
    if found.is_file and (match["checkpoint"] or match["weights"]):
        raise ConfigError(f"init_from={text} must be the file alone, which holds one set of weights; leave :... out")
    return found


def named_weights(text: str) -> InitFrom:
    """The folder, the checkpoint and the average of DIR[:step-00001000][:raw]."""
    match = WORDS.fullmatch(text)
    words = match.groupdict() if match else {"place": text}
    place = Path(words["place"]).expanduser()
    return InitFrom(place, words.get("checkpoint") or "last", words.get("weights") or "ema")


def checksum_of_run(text: object) -> str | None:
    """`checksum` of a run's weights for a configuration's resolver, which must not raise; None if there are none."""
    try:
        return checksum(named_weights(str(text))) if text is not None else None
    except (OSError, ValueError):
        return None


def sha256_of(path: object) -> str | None:
    """Of a file, for a configuration's resolver, which must not raise; None if there is none. An unchanged file, which
    may have gigabytes, is read once."""
    try:
        file = Path(str(path)).expanduser()
        return _sha256(file, _stamp(file)) if path is not None and file.is_file() else None
    except OSError:
        return None


@functools.cache
def _sha256(file: Path, stamp: tuple[Any, ...]) -> str:
    return file_sha256(file)


def init_identity(value: Any) -> Any:
    """`init_from` as it counts in the hash: what identifies the file of the weights, without its place.

    A text that names no weights stays as it is, and `init_from.check_start` says what is wrong with it. A value that is
    identified already, as in the record of a run, does not need the source; one that is older than the checksum counts
    by what was read.
    """
    if isinstance(value, str):
        try:
            return {"checksum": checksum(parse_init_from(value))}
        except (ConfigError, OSError, ValueError):
            return value
    if isinstance(value, Mapping):
        return {key: value[key] for key in value if (key == "checksum" if "checksum" in value else key not in BESIDE)}
    return value


def checksum(found: InitFrom) -> str:
    """A checksum of the files from which the weights are read, 12 hexadecimal digits. No tensor is read.

    A checkpoint ends with the checksum of its content, which is verified where it is loaded, so its end is enough.

    Raises:
        OSError, ValueError: there is no such file, or no regular one.
    """
    place = found.place.resolve()
    if found.is_file:
        return _of_bytes(place, place.parent, _stamp(place))
    hasher = hashlib.blake2b(found.weights.encode(), digest_size=6)
    with open_inside(_checkpoint_file(found), place, largest=None) as file:
        file.seek(max(os.fstat(file.fileno()).st_size - TRAILER, 0))
        hasher.update(file.read())
    if found.weights.startswith("std-"):  # reconstructed from the snapshots of the averages until the checkpoint
        end = step_of(f"{found.checkpoint}{CHECKPOINT}", CHECKPOINT)  # None for the last one
        for path in sorted((place / AVERAGES).glob(f"*/*.{TENSORS}")):
            if end is None or (step_of(path.name, f".{TENSORS}") or 0) <= end:
                hasher.update(_of_bytes(path, place, _stamp(path)).encode())
    return hasher.hexdigest()


def _checkpoint_file(found: InitFrom) -> Path:
    """The file from which a run's weights are read, and whose checksum counts; "last" is the first that is there."""
    folder = found.place.resolve() / CHECKPOINTS
    kept = sorted(folder.glob(f"step-*{CHECKPOINT}"), reverse=True)
    last = [folder / LAST, folder / PREVIOUS, *kept]
    wanted = last if found.checkpoint == "last" else [folder / f"{found.checkpoint}{CHECKPOINT}"]
    return next((path for path in wanted if path.is_file()), wanted[0])


@functools.lru_cache(maxsize=64)  # the hash of a run is asked for several times
def _of_bytes(path: Path, top: Path, stamp: tuple[Any, ...]) -> str:
    with open_inside(path, top, largest=None) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=6)).hexdigest()  # type: ignore[arg-type]


def read_init_weights(text: str) -> InitWeights:
    """The weights that `init_from` names; ConfigError if they do not exist, are damaged or not finite."""
    found = parse_init_from(text)
    if not found.place.exists():
        raise MissingHere(
            f"init_from={text} must be the folder of a run or a file of weights, and there is none; {HOW}. A run that "
            "has started from it needs it no more: continue that one with resume=FOLDER"
        )
    try:
        if found.is_file:
            place = found.place.resolve()
            open_inside(place, largest=None).close()  # not a FIFO, for which the libraries would wait
            source = _of_file(place, _stamp(place))
        else:
            config_hash = str(read_record(found.place, "init_from").get("config_hash"))
            files = [*(found.place / CHECKPOINTS).glob(f"*{CHECKPOINT}")]
            files += (found.place / AVERAGES).glob(f"*/*.{TENSORS}")
            stamps = tuple(map(_stamp, sorted(files)))
            source = _of_run(found._replace(place=found.place.resolve()), config_hash, stamps)
        return source._replace(identity=source.identity | {"checksum": checksum(found)})
    except (OSError, ValueError) as error:
        reason = str(error)
        raise ConfigError(reason if reason.startswith("init_from=") else f"init_from={text}: {reason}") from error
    except (AttributeError, LookupError, RuntimeError, TypeError) as error:  # a file from anybody
        raise ConfigError(f"init_from={text} must hold trained weights ({describe(error)}); use another one") from error


def free_init_weights() -> None:
    """Free the memory of the weights that were read."""
    _of_run.cache_clear()
    _of_file.cache_clear()


def checkpoint_content(folder: Path, checkpoint: str) -> dict[str, Any]:
    """The content of a checkpoint of a run, on the CPU; its tensors are views of the file, for a reader of some.

    Args:
        folder: folder of the checkpoints, in a run folder.
        checkpoint: "last" for the newest intact one, or the name of a numbered one.

    Raises:
        ConfigError: there is no such checkpoint, or it cannot be used.
    """
    from diffusion_lab.training import NewerCheckpoint, NoneIntact, newest_good
    from diffusion_lab.training.checkpoint_io import DamagedCheckpoint, load_finite

    try:
        if checkpoint == "last":
            newest = newest_good(folder, top=folder.parent, mapped=True)
            if newest is None:
                raise ConfigError(f"checkpoint={checkpoint} must exist in {folder}; train the run first")
            return newest[1]
        name = checkpoint.removesuffix(CHECKPOINT)
        names = [path.stem for path in sorted(folder.glob(f"*{CHECKPOINT}"))]
        if name not in names:  # also rejects a path to another folder
            hint = nearest(name, names) or "; set keep_every to keep more when training"
            raise ConfigError(f"checkpoint={checkpoint} must be one of {', '.join(names) or 'last'}{hint}")
        return load_finite(folder / f"{name}{CHECKPOINT}", folder.parent, mapped=True)
    except (NoneIntact, NewerCheckpoint, DamagedCheckpoint) as error:
        raise ConfigError(f"checkpoint={checkpoint} must be one that can be used: {error}") from error


def config_in_checkpoint(content: Mapping[str, Any]) -> Any:
    """The configuration of the run that wrote a checkpoint; None if another program did."""
    record = content.get("callbacks", {}).get("RunRecord")
    return record.get("config") if isinstance(record, dict) and "state_dict" in content else None


@functools.lru_cache(maxsize=2)  # the check reads what the run then starts from
def _of_run(found: InitFrom, config_hash: str, stamps: tuple[Any, ...]) -> InitWeights:
    from diffusion_lab.averaging import short
    from diffusion_lab.training.checkpoint_io import DamagedCheckpoint, load_finite

    file = _checkpoint_file(found)
    if file.is_file():  # no fallback to an older one, as for a run that goes on: the hash names this one
        try:
            content = load_finite(file, found.place, mapped=True)
        except DamagedCheckpoint as error:
            raise ConfigError(f"{error}; name a numbered one, as in init_from=DIR:step-00001000") from error
    else:
        content = checkpoint_content(file.parent, found.checkpoint)
    average, averaged = average_of(found.place, content, found.weights)
    own = {k.removeprefix(PREFIX): v for k, v in content.get("state_dict", {}).items() if k.startswith(PREFIX)}
    tensors = own | averaged
    weights = "raw" if average is None else f"ema {short(average)}"
    identity = {"config_hash": config_hash, "step": content.get("global_step"), "weights": weights}
    return _source(tensors, identity, config_in_checkpoint(content))


@functools.lru_cache(maxsize=2)
def _of_file(path: Path, stamp: tuple[Any, ...]) -> InitWeights:
    content = _tensors(path)
    inner = content.get("state_dict")
    content = inner if isinstance(inner, dict) else content
    tensors = {str(name): value for name, value in sorted(content.items()) if hasattr(value, "shape")}
    return _source(tensors, {"config_hash": None, "step": None, "weights": "file"}, None)


def _tensors(path: Path) -> dict[str, Any]:
    """The content of a file of weights; nothing in it is executed."""
    import torch

    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path.name} needs safetensors; pip install safetensors") from error
    except FileNotFoundError:
        raise
    except Exception as error:  # safetensors and torch raise many classes of errors for damaged files
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"{path.name} must hold tensors by name and nothing else ({reason}); save a state dict"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path.name} must hold tensors by name, and holds a {type(content).__name__}")
    return content


def _source(tensors: dict[str, Tensor], identity: dict[str, Any], saved: Any) -> InitWeights:
    from diffusion_lab.training import not_finite
    from diffusion_lab.training.trained_model import digest

    if not tensors:
        raise ConfigError("it must hold the weights of a model, and holds no tensor; use another one")
    if name := not_finite(tensors):
        raise ConfigError(f"{name} must be finite; use an earlier checkpoint")
    return InitWeights(tensors, identity | {"digest": digest(tensors)}, saved)


def _stamp(path: Path) -> tuple[Any, ...]:
    """A value that changes when the file is replaced."""
    status = path.stat()
    return path.name, status.st_mtime_ns, status.st_size
