"""The architecture in config.json of a folder that diffusers' `save_pretrained` wrote.

    {"_class_name": "UNet2DModel", "layers_per_block": 2, ...}  ->  {"architecture": ..., "arguments": {...}}

The folder is data from anywhere, and a configuration can contain what is executed: a node with `_target_` is built and
a `${...}` is resolved. Arguments are therefore numbers, flags, plain texts and lists of these, and nothing else.
Needs neither torch nor diffusers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from diffusion_lab.files import read_text

CONFIG = "config.json"
LARGEST = 2**20  # bytes
NAME = "_class_name"


def read_architecture(folder: str | Path) -> dict[str, Any]:
    """{"architecture": name of the class, "arguments": those of its constructor}. A message never quotes the file.

    Raises:
        ValueError: there is no such folder on this machine, or its config.json is no description of a network.
    """
    path = Path(folder).expanduser() / CONFIG
    if not path.parent.is_dir():
        raise ValueError("is no folder on this machine")
    if not path.is_file():
        raise ValueError(f"has no {CONFIG}")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"has a {CONFIG} of more than {LARGEST >> 20} MB")
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        raise ValueError(f"has a {CONFIG} that cannot be read") from None
    if not isinstance(content, dict) or not isinstance(content.get(NAME), str):
        raise ValueError(f"has a {CONFIG} without {NAME}")
    arguments = {key: value for key, value in content.items() if not key.startswith("_")}
    if not all(map(_plain, [content[NAME], *arguments, *arguments.values()])):
        raise ValueError(f"has a {CONFIG} whose values are not all numbers, plain texts and lists of them")
    return {"architecture": content[NAME], "arguments": arguments}


def architecture_or_fault(folder: object) -> dict[str, Any] | str | None:
    """`read_architecture` for a configuration's resolver, which must not raise: its error as a text; None for None."""
    try:
        return None if folder is None else read_architecture(str(folder))
    except ValueError as error:
        return str(error)


def _plain(value: Any) -> bool:
    """Whether it is a value that a configuration takes as it is."""
    if isinstance(value, list):
        return all(map(_plain, value))
    if isinstance(value, str):
        return "${" not in value and value != "???"
    return value is None or isinstance(value, bool | int | float)
