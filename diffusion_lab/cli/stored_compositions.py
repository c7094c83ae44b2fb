"""What words on the command line compose, kept in the folder of caches: Hydra takes 0.4 s for each on a slow machine.

    CACHE/compositions/FINGERPRINT/HASH.json    [configuration with its references, options] of some words

The fingerprint is that of the yaml files (names, sizes, times) and of the versions that read them, so what is stored is
what these files compose; those of other fingerprints are removed when one of these is written. A cache that cannot be
read or written is done without.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from diffusion_lab.cache_folder import cache_folder
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.files import write_whole
from diffusion_lab.versions import versions

FOLDER = "compositions"
Composition = tuple[dict[str, Any], dict[str, Any]]


def stored(words: Sequence[str], compose: Callable[[], Composition | None]) -> Composition | None:
    """The stored composition of `words`, or that of `compose`, which is stored unless it is None."""
    digest = hashlib.sha256(json.dumps(list(words)).encode()).hexdigest()
    path = cache_folder() / FOLDER / _fingerprint(conf_dir()) / f"{digest}.json"
    with suppress(OSError, ValueError):
        config, options = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(config, dict) and isinstance(options, dict):
            return config, options
    made = compose()
    if made is None:
        return None
    with suppress(OSError, TypeError):
        text = json.dumps(made)
        if json.loads(text) == list(made):  # JSON has other keys than texts as texts
            if not path.parent.exists():  # the first of these yaml files
                shutil.rmtree(path.parent.parent, ignore_errors=True)
            write_whole(path, text.encode())
    return made


@cache
def _fingerprint(folder: Path) -> str:
    """Of the yaml files below a folder and the versions of what composes them, for the life of this process."""
    found = sorted((str(path), path.stat()) for path in folder.rglob("*.yaml"))
    files = [(name, status.st_size, status.st_mtime_ns) for name, status in found]
    content = [files, versions("diffusion-lab", "hydra-core", "omegaconf")]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
