"""Standard output and standard error in an encoding that lacks some characters, such as ASCII.

Python raises UnicodeEncodeError for the first character that the encoding lacks, in the middle of a step, for example
under `PYTHONIOENCODING=ascii` or for the name of a file that is not UTF-8. Here such characters are replaced.
"""

from __future__ import annotations

import codecs
import io
import sys

READABLE = dict(zip("·−–—━×█", "-----x#", strict=True))
READABLE |= {"…": "...", "±": "+-", "≤": "<=", "≥": ">=", "→": "->", "²": "^2"}
HANDLER = "diffusion_lab.readable"


def replace_what_cannot_be_encoded() -> None:
    """Let the process's standard streams print any text; a stream that already handles such characters is unchanged."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or not _is_unicode(stream)):
            stream.reconfigure(errors=HANDLER)


def _readable(error: UnicodeError) -> tuple[str, int]:
    """The handler: a similar character, or else the escape of Python's own `backslashreplace`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    similar = "".join(READABLE.get(char) or char.encode("ascii", "backslashreplace").decode() for char in text)
    return similar, error.end


def _is_unicode(stream: io.TextIOWrapper) -> bool:
    return codecs.lookup(stream.encoding).name.startswith("utf")


codecs.register_error(HANDLER, _readable)
