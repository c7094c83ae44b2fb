"""A docstring in its parts: text with formulas, when to use it, its source, the meaning of its arguments."""

from __future__ import annotations

import re
from typing import NamedTuple

SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields", "Example")
USE, SOURCE = "Use: ", "Source: "
CITATION = re.compile(
    r"\b[A-Z][a-z][\w-]*(?: et al\.|(?:,? (?:and|&) [A-Z][\w-]+))?,? \(?(?:19|20)\d\d[a-z]?\b|\bXie & Agam\b"
)


class Docstring(NamedTuple):
    """A docstring in its parts.

    Attributes:
        body: paragraphs; a formula is one whose lines are indented by four spaces.
        use: when to use it; "" if the docstring does not say.
        source: papers and code that it comes from, from the line that begins with "Source: ".
        args: argument -> its meaning.
    """

    body: tuple[str, ...]
    use: str
    source: str
    args: dict[str, str]


def parse(text: str) -> Docstring:
    """The parts of a docstring of Google's style."""
    head, *rest = re.split(rf"^({'|'.join(SECTIONS)}):\n", text, flags=re.MULTILINE)
    paragraphs = [one.strip("\n") for one in re.split(r"\n\s*\n", head) if one.strip()]
    args = dict(zip(rest[::2], rest[1::2], strict=True)).get("Args", "")
    return Docstring(
        tuple(one for one in paragraphs if not one.startswith((USE, SOURCE))),
        _said(paragraphs, USE),
        _said(paragraphs, SOURCE),
        {name: " ".join(said.split()) for name, said in re.findall(r"^ {4}(\w+): (.*(?:\n {5,}.*)*)", args, re.M)},
    )


def citations(text: str) -> list[str]:
    """Papers named by author and year, "Ho et al. 2020", each once."""
    found = (re.sub(r"[(,]", "", one).replace(" and ", " & ") for one in CITATION.findall(" ".join(text.split())))
    return list(dict.fromkeys(found))


def _said(paragraphs: list[str], word: str) -> str:
    said = [" ".join(one[len(word) :].split()) for one in paragraphs if one.startswith(word)]
    return " ".join(said)
