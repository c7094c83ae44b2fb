"""A distribution of timesteps as a plain file, which other trainers read with one line: `numpy.loadtxt(path)`.

    # any line that starts with a hash is a comment
    0.0009765625        p_0, the least noisy timestep
    ...                 one number per line, T lines; they sum to 1

Numbers are written with as many digits as a float64 needs, so reading gives the same bits.
Needs neither torch nor NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from diffusion_lab.files import read_text, write_whole

LARGEST = 64 * 2**20  # bytes; a million numbers take 25 MB


def write_distribution(path: Path, probabilities: Sequence[float], comment: str) -> None:
    """Write the numbers, the least noisy timestep first, under one line of comment."""
    lines = [f"# {' '.join(comment.split())}", *(repr(float(p)) for p in probabilities)]
    write_whole(path, ("\n".join(lines) + "\n").encode())


def read_distribution(path: str | Path) -> list[float]:
    """The numbers of a file. A message names the line, and never quotes it: the file may be any file.

    Raises:
        ValueError: it is missing, a folder, too large or no text, holds no number, or a line is no finite number >= 0.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        raise ValueError("is a folder")
    if not place.is_file():
        raise ValueError("does not exist")
    if place.stat().st_size > LARGEST:
        raise ValueError(f"has more than {LARGEST >> 20} MB")
    try:
        lines = read_text(place).splitlines()
    except UnicodeDecodeError:
        raise ValueError("is not a text file") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
    numbers = [
        _number(i, line) for i, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")
    ]
    if not sum(numbers) > 0:
        raise ValueError("has no positive number")
    return numbers


def _number(line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"has no number in line {line}") from None
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"has {value} in line {line}, which is not a finite number >= 0")
    return value


def numbers_or_fault(path: object) -> list[float] | str:
    """`read_distribution` for a configuration's resolver, which must not raise: its error as a text."""
    try:
        return read_distribution(str(path)) if path is not None else "is not given"
    except ValueError as error:
        return str(error)
