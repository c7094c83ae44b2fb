"""Standard output and standard error that may be closed while the command runs, or lack characters.

Results are in the run folder, and only messages are printed. A closed pipe (EPIPE, `diffusion-lab train | head -1`), a
closed terminal (EIO) and a full disk under a redirected output (ENOSPC) therefore end the messages, not the command.
Python would otherwise raise in the middle of a step, and once more when it flushes its streams at exit. It would also
raise UnicodeEncodeError for the first character that the encoding lacks, for example under `PYTHONIOENCODING=ascii` or
for the name of a file that is not UTF-8; such characters are replaced.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import Any

GONE = (errno.EPIPE, errno.EIO, errno.ENOSPC)
READABLE = dict(zip("·−–—━×█", "-----x#", strict=True))
READABLE |= {"…": "...", "±": "+-", "≤": "<=", "≥": ">=", "→": "->", "²": "^2"}
HANDLER = "diffusion_lab.readable"


def survive_closed_output() -> None:
    """Let the process's standard streams work without a reader; streams that were replaced are left unchanged."""
    for number in (0, 1, 2):
        _open_if_closed(number)
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream, own = getattr(sys, name), getattr(sys, f"__{name}__")
        if stream is None:  # the process was started without it: `>&-`
            setattr(sys, name, _text(number, line_buffering=True))
        elif stream is own and isinstance(stream, io.TextIOWrapper):
            if isinstance(getattr(stream.buffer, "raw", None), _Silencing):
                continue
            stream.flush()
            form = ("encoding", "errors", "line_buffering", "write_through")
            setattr(sys, name, _text(stream.fileno(), **{key: getattr(stream, key) for key in form}))


class _Silencing(io.FileIO):
    """A file descriptor that is redirected to /dev/null when a write fails for want of a reader."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content) or 0
        except OSError as error:
            if error.errno not in GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())  # also for direct writes to the descriptor and for child processes
            os.close(nowhere)
            return memoryview(content).nbytes


def _text(descriptor: int, **form: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(_Silencing(descriptor, "w", closefd=False)), **form)


def _open_if_closed(number: int) -> None:
    """Open a closed standard descriptor: the next file to be opened would get its number, and then the output."""
    try:
        os.fstat(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)


def replace_what_cannot_be_encoded() -> None:
    """Let the process's standard streams print any text; a stream that already handles such characters is unchanged."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            unicode = codecs.lookup(stream.encoding).name.startswith("utf")
            if stream.errors == "strict" or not unicode:
                stream.reconfigure(errors=HANDLER)


def _readable(error: UnicodeError) -> tuple[str, int]:
    """The handler: a similar character, or else the escape of Python's own `backslashreplace`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    similar = "".join(READABLE.get(char) or char.encode("ascii", "backslashreplace").decode() for char in text)
    return similar, error.end


codecs.register_error(HANDLER, _readable)
