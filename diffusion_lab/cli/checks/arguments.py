"""Does a class take the arguments that a node gives it?"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from diffusion_lab.cli.checks.annotations import SPECIAL, UNREAD, Signature, decided_by_type, fits, in_words
from diffusion_lab.cli.checks.setting import shown
from diffusion_lab.cli.errors import nearest

SHOWN = 12  # arguments that a message lists


def argument_faults(content: Mapping[Any, Any], path: str, signature: Signature) -> list[str]:
    """Keys that do not exist, arguments that are missing, values of the wrong type.

    Args:
        content: the node, with references as they are written.
        path: its place in the configuration.
        signature: of the class or function that it names.
    """
    parameters, needed, open_ended, hints, _ = signature
    faults = []
    for key, value in content.items():
        if key in SPECIAL:
            continue
        if key not in parameters:
            if not open_ended:
                name = content["_target_"].rpartition(".")[2]
                faults.append(
                    f"{path}.{key}={shown(value)}: {name} has no argument {key}{nearest(str(key), parameters)}; "
                    f"it takes {', '.join(list(parameters)[:SHOWN])}{', ...' if len(parameters) > SHOWN else ''}"
                )
        elif key in hints and not (isinstance(value, str) and ("${" in value or value == "???")):
            hint, default = hints[key], parameters[key].default
            if (type(value) not in decided_by_type(hint) or value == "") and not fits(value, hint):
                known = default is not inspect.Parameter.empty and default is not UNREAD
                cure = f"use {shown(default)}, the default" if known else "see its yaml file"
                faults.append(f"{path}.{key}={shown(value)} must be {in_words(hint)}; {cure}")
    if not content.get("_partial_", False):
        for name in needed:
            if name not in content:
                faults.append(f"{path}.{name} is missing, and {content['_target_']} needs it; set {path}.{name}=...")
    return faults
