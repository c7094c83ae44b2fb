"""Text for a terminal: characters that would control it are shown instead of sent.

A run folder, a file name, a label or a library's message may hold any character. Those that move the cursor, change the
terminal or the clipboard, or reorder or hide text are replaced by their escapes in a Python string, ESC by `\\x1b`:

- C0 but for line feed and tab, DEL, and C1 (U+0000 to U+001F, U+007F to U+009F); a carriage return overwrites a line
- directions and separators of lines (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069)
- tags and the byte order mark, which are invisible (U+FEFF, U+E0000 to U+E007F)
- surrogates (U+D800 to U+DFFF), which stand for undecodable bytes of file names and which no stream can encode

`escaped_output` applies this to all that a command prints, whoever prints it: `print`, the messages of libraries, log
lines, warnings and tracebacks. What needs to control the terminal, the tables, bars and colours of rich, is written
through `make_console`, which escapes the text and sends its own codes.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_BREAKS = re.compile(r"[\t\n]")


def printable(text: str) -> str:
    """`text` with its control characters as escapes; lines and tabs stay. Applied twice it is the same."""
    return _CONTROLS.sub(_escape, text)


def one_line(text: str) -> str:
    """`printable`, with line feeds and tabs as escapes too: for a name, which could otherwise begin a line."""
    return _BREAKS.sub(_escape, printable(text))


def _escape(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


class Formatter(logging.Formatter):
    """Log lines, for handlers that write to a file; see conf/train.yaml."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class Escaping:
    """A text stream that writes `printable` text to another, whose methods it has otherwise."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.flush, self.isatty = stream, stream.flush, stream.isatty

    def write(self, text: str) -> int:
        return self.stream.write(printable(text))

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __iter__(self) -> Iterator[str]:
        return iter(self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def escape_output() -> None:
    """Let standard output and standard error be `Escaping`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, Escaping):
            setattr(sys, name, Escaping(stream))


@contextmanager
def escaped_output() -> Iterator[None]:
    """`escape_output` while a command runs. After an exception it lasts, because Python is about to print it."""
    before = sys.stdout, sys.stderr
    escape_output()
    yield
    sys.stdout, sys.stderr = before


def unescaped(stream: TextIO) -> TextIO:
    """The stream below `Escaping`, and below rich's own while it shows bars: for codes that control the terminal."""
    while True:
        below = stream.stream if isinstance(stream, Escaping) else getattr(stream, "rich_proxied_file", None)
        if below is None:
            return stream
        stream = cast("TextIO", below)


def make_console(stderr: bool = False, width: int | None = None) -> Console:
    """A console of rich that writes `printable` text, in which brackets are brackets and no markup.

    Args:
        stderr: write to standard error.
        width: characters; None: the terminal's.
    """
    from rich.console import Console
    from rich.segment import Segment

    class Printing(Console):
        def render_str(self, text: str, **options: Any) -> Text:  # before cells are measured
            return super().render_str(printable(text), **options)

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    stream = unescaped(sys.stderr if stderr else sys.stdout)
    return Printing(file=stream, width=width, markup=False, emoji=False, highlight=False)


@contextmanager
def logged_once() -> Iterator[None]:
    """Inside, the handlers of the root logger write no message twice, whichever part of a sweep it comes from."""
    seen: dict[logging.Handler, set[str]] = {handler: set() for handler in logging.getLogger().handlers}

    def fresh(handler: logging.Handler, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        known = text in seen[handler]
        seen[handler].add(text)
        return not known

    filters = {handler: partial(fresh, handler) for handler in seen}
    for handler, once in filters.items():
        handler.addFilter(once)
    try:
        yield
    finally:
        for handler, once in filters.items():
            handler.removeFilter(once)
