"""A command on a terminal of a given size, and what a person would have seen on it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyte

from tests.harness import Child

BEFORE_ERASING = re.compile(rb"(?=\r\x1b\[2K)")  # a line is left for another text


class Recording(NamedTuple):
    """What a terminal showed."""

    code: int  # the command's exit code
    shown: str  # every screen, one below the other
    last: list[str]  # lines at the end, from the first that was printed, without empty ones
    first_word: float  # seconds until something was printed
    shown_at: list[tuple[float, str]]  # seconds and the screen, at each change


def on_a_terminal(
    command: Sequence[str] | Callable[[], int],
    columns: int = 80,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Recording:
    """Run a command, or a function in a fork, with standard output and error on a terminal of 40 lines."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    screen = pyte.HistoryScreen(columns, 40, history=2000)
    stream = pyte.ByteStream(screen)
    surroundings = {**os.environ, "TERM": "xterm-256color", **(env or {})}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        surroundings.pop(name, None)
    start = time.monotonic()
    if callable(command):
        wait = Child(lambda: _on(its, command, surroundings, cwd), Path(os.devnull)).wait
    else:
        wait = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=cwd, env=surroundings).wait
    os.close(its)
    screens: list[tuple[float, str]] = []
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the command has ended
            break
        if not data:
            break
        pieces = BEFORE_ERASING.split(data)  # what is written and erased in one read was shown as well
        for piece in filter(None, pieces):
            stream.feed(piece)
            screens.append((time.monotonic() - start, "\n".join(screen.display)))
    os.close(ours)
    above = ["".join(line[x].data for x in range(columns)) for line in screen.history.top]
    last = [line.rstrip() for line in [*above, *screen.display] if line.strip()]
    shown = "\n".join(text for _, text in screens)
    return Recording(wait(), shown, last, screens[0][0] if screens else float("inf"), screens)


def _on(terminal: int, work: Callable[[], int], surroundings: Mapping[str, str], cwd: Path | None) -> None:
    """Call a function in this process, whose standard streams are the terminal from now on."""
    for number in range(3):
        os.dup2(terminal, number)
    sys.stdin, sys.stdout, sys.stderr = (open(number, "w" if number else "r", closefd=False) for number in range(3))
    os.environ.clear()
    os.environ.update(surroundings)
    os.chdir(cwd or Path())
    raise SystemExit(work())
