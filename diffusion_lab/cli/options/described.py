"""An option with what its class says: purpose, formula, use, source, and the meaning of every key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.cli.conf_folder import METRIC
from diffusion_lab.cli.definitions import LIBRARIES, Definition, find, lost
from diffusion_lab.cli.options import files
from diffusion_lab.cli.path_arguments import path_arguments

# A sentence ends at a full stop before a capital, but not at "et al. 2020" or "sec. 3".
SENTENCE = re.compile(r"(?<!al)(?<!sec)(?<!eq)\.(?= [A-Z`]|$)")
REFERENCE = re.compile(r"\$\{(\w+:)?([^${}]*)\}")
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


@dataclass(frozen=True)
class Described:
    """An option as it is printed.

    Attributes:
        option: the yaml file.
        definition: of its class; None if the source is not at hand.
        doc: the docstring in its parts.
        settings: every key, also those of the constructor that the file leaves out.
        owner: the option that takes one of this group, `sampler=log_snr`; "" for a group that is not below another.
        needed: keys of places that it reads and only the user can know, `source.root`.
        lost: why the source of a class of the user's own is not at hand.
        measures: of a metric: which side is better, its units, and what it is computed from.
    """

    option: files.Option
    definition: Definition | None
    doc: Docstring
    settings: tuple[files.Key, ...]
    owner: str = ""
    needed: tuple[str, ...] = ()
    lost: str = ""
    measures: str = ""

    @property
    def about(self) -> tuple[str, ...]:
        """What it is, in paragraphs: the comment of the file, else the first paragraph of the docstring."""
        above, first = self.option.about, " ".join((self.doc.body or ("",))[0].split())
        return above or ((first,) if first else ())

    @property
    def purpose(self) -> str:
        """What it is, in one sentence."""
        text = self.about[0] if self.about else ""
        return SENTENCE.split(text, maxsplit=1)[0].rstrip(".")

    @property
    def source(self) -> str:
        """Where it comes from: the docstring's line, else the papers that the comment and the docstrings name."""
        return self.doc.source or ", ".join(self.papers)

    @property
    def papers(self) -> list[str]:
        """Papers by author and year; the first place that names any is searched no further."""
        texts = (self.doc.source, " ".join(self.option.about), *self.doc.body)
        return next((found for text in texts if (found := citations(text))), [])


def described(group: str, name: str, folders: Sequence[Path], modules: Sequence[Path] = ()) -> Described:
    """The option `group=name` of the yaml files in `folders`, the package's first; `modules` are folders with the
    user's own modules."""
    option = files.read_option(group, name, folders)
    definition, owner = find(option.builds, modules), _owner(group, folders)
    known = {key.name for key in option.keys if key.default.startswith("${")}
    needed = tuple(
        f"{key}.{name}"
        for key, target in option.inside.items()
        if (part := find(target, modules))
        for name, kind in path_arguments(target, tuple(modules)).items()
        if kind == "read" and not part.arguments().get(name, "known") and f"{key}.{name}" not in known
    )
    return Described(
        option,
        definition,
        parse(definition.docstring() if definition else ""),
        tuple(_settings(option, definition if option.target else None, argument_texts(option, modules), folders)),
        owner,
        needed,
        lost(option.builds, modules) if definition is None else "",
        _measures(definition) if definition and group == METRIC else "",
    )


def argument_texts(option: files.Option, modules: Sequence[Path] = ()) -> dict[str, str]:
    """Key -> its entry under `Args:` in the docstring of the class that takes it, with null, true and false as in yaml.

    That is the text of such a key, which then has no comment in the file; keys that no class of this package or of the
    user's documents have the comment.
    """
    found: dict[str, str] = {}
    for place, target in [("", option.target), *((f"{key}.", target) for key, target in option.inside.items())]:
        definition = find(target, modules)
        for one in reversed([*definition.lineage()] if definition else []):
            if one.module.partition(".")[0] not in LIBRARIES:
                found |= {place + name: _as_yaml(text) for name, text in parse(one.docstring()).args.items()}
    return found


def _as_yaml(text: str) -> str:
    return re.sub(r"\b(None|True|False)\b", lambda word: {"None": "null"}.get(word[0], word[0].lower()), text)


def _measures(definition: Definition) -> str:
    """`lower is better; in dB; from samples`, of a metric's class."""
    about = definition.constants()
    better, needs = about.get("better"), about.get("needs") or ()
    side = {"neither": "neither side is better"}.get(str(better), f"{better} is better" if better else "")
    units = f"in {about['units']}" if about.get("units") else ""
    return "; ".join(filter(None, [side, units, f"from {', '.join(sorted(needs))}" if needs else ""]))


def _owner(group: str, folders: Sequence[Path]) -> str:
    """The first option of the group above that has one of `group` below it."""
    above, slash, _ = group.rpartition("/")
    for name in files.options(above, folders) if slash else ():
        if any(group == part for part, _ in files.read_option(above, name, folders).parts.values()):
            return f"{above}={name}"
    return ""


def _settings(
    option: files.Option, definition: Definition | None, texts: dict[str, str], folders: Sequence[Path]
) -> Iterator[files.Key]:
    yield from _parts(option, texts, folders)
    own = [key for key in option.keys if key.name not in option.parts]
    for key in own:
        text = texts.get(key.name) or key.comment
        if text or "." not in key.name:  # not what is only passed on inside
            yield files.Key(key.name, readable(key.default), text)
    if definition and "_partial_" not in option.path.read_text(encoding="utf-8"):  # else other parts give the others
        given = {*option.parts, *(key.name for key in own)}
        left_out = {name: value for name, value in definition.arguments().items() if value and name not in given}
        yield from (files.Key(name, value, texts.get(name, "")) for name, value in left_out.items())


def _parts(option: files.Option, texts: dict[str, str], folders: Sequence[Path]) -> Iterator[files.Key]:
    """Parts below the option: their default, and what they are exchanged with."""
    for name, (group, chosen) in option.parts.items():
        own = group == f"{option.group}/{name}"
        key = group if own else f"{group}@{option.group.partition('/')[0]}.{name}"
        others = [one for one in files.options(group, folders) if one not in (chosen, option.name)]
        exchanged = f"{key}=NAME takes another: {', '.join(others)}" if others else ""
        said = ". ".join(filter(None, [texts.get(name, "").rstrip("."), exchanged]))
        yield files.Key(name, f"{group}={chosen}" if chosen else "null", said)


def readable(value: str) -> str:
    """A default with references in words: `${share:0.1,${max_steps}}` -> `0.1 * max_steps`."""
    if re.fullmatch(r"\$\{\w+\}", value):
        return f"the run's {value[2:-1]}"
    while match := REFERENCE.search(value):
        kind, inside = match[1], match[2]
        if kind == "share:":
            inside = " * ".join(inside.split(",", 1))
        elif kind == "at_most:":
            inside = f"min({', '.join(inside.split(',', 1))})"
        elif kind:
            inside = f"{kind[:-1]}({inside})" if inside else kind[:-1]
        value = value[: match.start()] + inside + value[match.end() :]
    return value


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
