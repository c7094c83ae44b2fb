"""The lines of the output as Markdown for a bug report, without names, paths, addresses and keys.

Lines hold messages of other people's code, in which anything may stand. So what is taken out is recognised by its form,
and by the names that this machine gives to its user and itself; every word with a slash goes, and the checks use none.
Names of other machines look like those of modules, and stay.
"""

from __future__ import annotations

import getpass
import os
import platform
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)  # in the name of a variable
SHORTEST_SECRET, SHORTEST_PART = 6, 4  # characters; a shorter name is taken out where it is a word of its own
USER_VARIABLES = ("USER", "LOGNAME", "USERNAME", "SUDO_USER")
HOST_VARIABLES = ("HOSTNAME", "HOST", "COMPUTERNAME")
FORMS = {
    r"""(['"`])[^'"`]*[/\\][^'"`]*\1""": "<path>",  # also with spaces
    r"\S*[/\\]\S*": "<path>",
    r"\S+@\S+": "<address>",
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?!\.)": "<address>",
    r"(?<![\w:])(?=\S*\d)(?=\S*::|(?:[0-9A-Fa-f]{1,4}:){7})[0-9A-Fa-f:]{3,}(?:%\w+)?(?![\w:])": "<address>",  # IPv6
    r"\b[A-Za-z0-9_]{32,}\b": "<key>",
    r"\b(?:sk-[\w-]{12,}|hf_[A-Za-z0-9]{12,}|gh[a-z]_[A-Za-z0-9]{12,}|xox[a-z]-[\w-]{8,})": "<key>",  # of services
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b": "<key>",  # identifiers, as of a GPU
}


def markdown(lines: Sequence[str]) -> str:
    """The report of printed lines."""
    text = "\n".join(without_names(line) for line in lines)
    return f"### diffusion-lab doctor\n\n```text\n{text.replace('```', '')}\n```\n"


def without_names(line: str) -> str:
    """A line without what tells who and where."""
    for value, word in sorted(_known(), key=lambda pair: -len(pair[0])):
        pattern = re.escape(value)
        if len(value) < SHORTEST_PART:
            pattern = rf"(?<![^\W_]){pattern}(?![^\W_])"
        line = re.sub(pattern, word, line, flags=re.IGNORECASE)
    for pattern, word in FORMS.items():
        line = re.sub(pattern, word, line)
    return line


def _known() -> Iterator[tuple[str, str]]:
    """Names and secrets of this machine with the words in their place."""
    for name, value in os.environ.items():
        if SECRET.search(name) and len(value) >= SHORTEST_SECRET:
            yield value, "<key>"
    folders = [tempfile.gettempdir(), *(os.environ.get(name, "") for name in ("HOME", "PWD", "VIRTUAL_ENV"))]
    users = [os.environ.get(name, "") for name in USER_VARIABLES]
    hosts = [os.environ.get(name, "") for name in HOST_VARIABLES]
    with suppress(OSError, RuntimeError, KeyError):  # a container may have no user of this number
        folders.append(os.getcwd())
        folders.append(str(Path.home()))
        users.append(getpass.getuser())
    with suppress(OSError):
        hosts += [platform.node(), socket.gethostname()]
    hosts += [host.partition(".")[0] for host in hosts]
    users += [Path(folder).name for folder in folders[1:2]]
    for values, word in ((folders, "<path>"), (users, "<user>"), (hosts, "<host>")):
        yield from ((value, word) for value in values if len(value) > 1)
