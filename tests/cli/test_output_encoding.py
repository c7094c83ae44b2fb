"""Output in an encoding that lacks characters, such as ASCII."""

from __future__ import annotations

import io
import sys

import pytest

from diffusion_lab.cli.standard_streams import replace_what_cannot_be_encoded


@pytest.mark.parametrize(
    ("encoding", "errors", "shown"),
    [
        ("ascii", "strict", b"a - b -> \\u65e5 \\udcff\n"),
        ("ascii", "surrogateescape", b"a - b -> \\u65e5 \\udcff\n"),
        ("latin-1", "strict", b"a \xb7 b -> \\u65e5 \\udcff\n"),
        ("utf-8", "strict", "a · b → 日 \\udcff\n".encode()),
        ("utf-8", "surrogateescape", "a · b → 日 ".encode() + b"\xff\n"),  # names of files as they are
    ],
)
def test_every_character_is_printed_somehow(encoding, errors, shown, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding, errors, newline="\n"))
    replace_what_cannot_be_encoded()
    print("a · b → 日 \udcff", flush=True)
    assert written.getvalue() == shown
