"""Commands that are printed for a user to type, whatever the names of the folders in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

PLAIN = re.compile(r"[\w./+@%:-]+", re.ASCII)
OTHER = re.compile(r"[\d.e_+-]+|null|true|false|[+-]?(nan|inf)", re.ASCII | re.IGNORECASE)  # no text, but a number etc.


def setting(key: str, value: str | Path) -> str:
    """`key=value` for Hydra, whose grammar gives quotes, commas and brackets a meaning."""
    text = str(value)
    if PLAIN.fullmatch(text) and not OTHER.fullmatch(text):
        return f"{key}={text}"
    # Only backslashes before a quote have to be doubled, and all that Hydra would interpolate has to be escaped.
    quoted = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + (f"\\{found[2]}" if found[2] else ""), text)
    return f"{key}='{quoted}'"


def key_of(word: str) -> str:
    """The key of a word that `setting` makes, or of one that adds or deletes it: `+seed=3` -> `seed`."""
    return word.lstrip("+~").partition("=")[0].strip()


def command(*words: str | Path) -> str:
    """`diffusion-lab` with these words, quoted for a shell."""
    return shlex.join(["diffusion-lab", *map(str, words)])
