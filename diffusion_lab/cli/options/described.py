"""An option with what its class says: purpose, formula, use, source, and the meaning of every key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.cli.conf_folder import METRIC
from diffusion_lab.cli.definitions import Definition, find, lost
from diffusion_lab.cli.options import files
from diffusion_lab.cli.places import places

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
class Setting:
    """One key of an option: `name=default`, and its meaning."""

    name: str
    default: str
    meaning: str


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
    settings: tuple[Setting, ...]
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
    """The option `group=name`.

    Args:
        group: such as `sampler`.
        name: of the option.
        folders: with the yaml files, the package's first.
        modules: folders with the user's own modules.
    """
    option = files.read(group, name, folders)
    definition, owner = find(option.target, modules), _owner(group, folders)
    if definition is None:
        settings = tuple(Setting(key.name, readable(key.default), key.comment) for key in option.keys)
        parts = (*_parts(option, folders, {}), *settings)
        return Described(option, None, parse(""), parts, owner, lost=lost(option.target, modules))
    doc, meanings = parse(definition.docstring()), {}
    for one in reversed(list(definition.lineage())):
        meanings |= parse(one.docstring()).args
    inner = {key: one for key, target in option.inside.items() if (one := find(target, modules)) is not None}
    for key, part in inner.items():
        of_part = {
            name: text for one in reversed(list(part.lineage())) for name, text in parse(one.docstring()).args.items()
        }
        meanings |= {f"{key}.{name}": text for name, text in of_part.items()}
    needed = tuple(
        f"{key}.{name}"
        for key, part in inner.items()
        for name, kind in places(option.inside[key], tuple(modules)).items()
        if kind == "read" and not part.arguments().get(name, "known")
    )
    found = _settings(option, definition, meanings, folders)
    told = tuple(one for one in found if one.meaning or "." not in one.name)  # not what is only passed on inside
    measures = _measures(definition) if group == METRIC else ""
    return Described(option, definition, doc, told, owner, needed, measures=measures)


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
        if any(group == part for part, _ in files.read(above, name, folders).parts.values()):
            return f"{above}={name}"
    return ""


def _settings(
    option: files.Option, definition: Definition, meanings: dict[str, str], folders: Sequence[Path]
) -> list[Setting]:
    arguments = definition.arguments()
    keys = {key.name: key for key in option.keys}
    found = list(_parts(option, folders, meanings))
    found += [
        Setting(name, readable(key.default), _both(meanings.get(name, ""), key.comment))
        for name, key in keys.items()
        if name not in option.parts
    ]
    partial = "_partial_" in option.path.read_text(encoding="utf-8")  # the other arguments come from other parts
    left_out = {name: value for name, value in arguments.items() if name not in keys and name not in option.parts}
    found += [Setting(name, value, meanings.get(name, "")) for name, value in left_out.items() if value and not partial]
    return found


def _parts(option: files.Option, folders: Sequence[Path], meanings: dict[str, str]) -> list[Setting]:
    """Parts below the option: their default, and what they are exchanged with."""
    found = []
    for name, (group, chosen) in option.parts.items():
        own = group == f"{option.group}/{name}"
        key = group if own else f"{group}@{option.group.partition('/')[0]}.{name}"
        others = [one for one in files.options(group, folders) if one not in (chosen, option.name)]
        said = _both(meanings.get(name, ""), f"{key}=NAME takes another: {', '.join(others)}" if others else "")
        found.append(Setting(name, f"{group}={chosen}" if chosen else "null", said))
    return found


def _both(meaning: str, comment: str) -> str:
    """The docstring's words, then those of the yaml file."""
    if not meaning or not comment:
        return meaning or comment
    if comment.rstrip(".").lower() in meaning.lower():
        return meaning
    is_setting = "=" in comment.split(" ", 1)[0]
    return f"{meaning.rstrip('.')}. {comment if is_setting else comment[:1].upper() + comment[1:]}"


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
