"""The signature of run.json, which distinguishes a run folder of one's own from one of somebody else's.

It is HMAC-SHA256 over the whole record, with a key of this user that lies in the configuration folder and never in a
run. It does not cover the folder's place, so a moved or copied run stays one's own, and one whose record was edited
does not. Checkpoints are not covered; they are data, whoever wrote them.

Without a key that this user alone can read nothing is signed and no signature is valid, so every folder is treated as
somebody else's: without a home folder, with one that cannot be written to, and with a key that others may read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from diffusion_lab.files import decoded

SIGNATURE = "signature"  # of run.json: hex digits
KEY = "run.key"
SIZE = 32  # bytes of the key
OWN_PARTS = "own_parts"  # of run.json: where the parts of the user's own were when it was trained
CONTEXT = b"diffusion-lab run.json 1\n"  # no other text that is ever signed with this key begins like this


def signed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record, of plain values, with this user's signature; without one if there is no key and none can be made.

    Two processes that make the key at once get the same.
    """
    unsigned = {key: value for key, value in record.items() if key != SIGNATURE}
    key = _key(make=True)
    if key is None:
        return unsigned
    as_read = decoded(json.dumps(unsigned))
    return unsigned | {SIGNATURE: _code(as_read, key)}


def is_own(record: Any) -> bool:
    """Whether this user has signed the content of a run.json, all of it as it is now."""
    if not isinstance(record, dict) or not isinstance(record.get(SIGNATURE), str):
        return False
    key = _key(make=False)
    try:
        return key is not None and hmac.compare_digest(_code(record, key).encode(), record[SIGNATURE].encode())
    except (TypeError, ValueError, RecursionError):  # a file from elsewhere may hold anything
        return False


def own_parts_of(record: Any) -> dict[str, Any]:
    """`own_parts` of a run.json that this user has signed; {} of any other and of one without."""
    return record.get(OWN_PARTS, {}) if is_own(record) else {}


def config_dirs_of(record: Any) -> list[str]:
    """The folders that were given with --config-dir for a run of the user's own, whether they are there or not."""
    return own_parts_of(record).get("config_dirs", [])


def key_file() -> Path | None:
    """Where this user's key is, whether there is one or not; None without a home folder."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    try:
        base = Path(given) if os.path.isabs(given) else Path.home() / ".config"
    except RuntimeError:  # neither HOME nor an entry of this user, as in some containers
        return None
    return base / "diffusion-lab" / KEY if base.is_absolute() else None


def _code(record: Mapping[str, Any], key: bytes) -> str:
    """The HMAC of a record as JSON gives it back, without its signature."""
    content = {name: value for name, value in record.items() if name != SIGNATURE}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, CONTEXT + text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    path = key_file()
    if path is None:
        return None
    key = _read(path)
    if key is None and make:
        with suppress(OSError):
            _make(path)
        key = _read(path)
    return key


def _read(path: Path) -> bytes | None:
    """The key; None unless it is a file of this user's that nobody else can read, in a folder that nobody else can
    write to."""
    with suppress(OSError):
        folder, handle = path.parent.stat(), os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            status = os.fstat(handle)
            mine = status.st_uid == folder.st_uid == os.geteuid()
            if mine and stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077 and not folder.st_mode & 0o022:
                key = file.read(SIZE + 1)
                return key if len(key) == SIZE else None
    return None


def _make(path: Path) -> None:
    """Write a new key under a name of its own and give it its name unless there is one, so that a key is never seen in
    part and never replaced.

    Raises:
        OSError: it cannot be written, or there is one.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "wb") as file:
            os.fchmod(handle, 0o600)  # whatever the umask
            file.write(secrets.token_bytes(SIZE))
            file.flush()
            os.fsync(handle)
        os.link(temporary, path)
    finally:
        os.unlink(temporary)
