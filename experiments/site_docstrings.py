"""For `make docs`: docstrings are text with formulas, and in Markdown `a: > 0` would be a quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SIGN = re.compile(r"^(\s*[\w, ]+: )(?=[<>])", re.MULTILINE)


class Signs(griffe.Extension):
    """Escapes a sign at the beginning of an argument's meaning."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every class and function."""
        if obj.docstring:
            obj.docstring.value = _SIGN.sub(r"\1\\", obj.docstring.value)
