"""The text of `diffusion-lab list` in a number of columns. No name is broken; lines wrap between words."""

from __future__ import annotations

import itertools
import re
import shlex
import textwrap
from collections.abc import Sequence

from diffusion_lab.cli.options.described import Described
from diffusion_lab.cli.options.groups import ABOUT

LEAST = 30  # columns for text beside a name; below this it is placed under the name
PAPER = 24  # columns of the papers in a wide table
WIDE = 100  # columns from which papers have a column of their own


def group_lines(name: str, options: Sequence[str], default: str, width: int) -> list[str]:
    """A group in the overview: what it is, and the names of its options, the default in brackets."""
    title = f"{name} ({len(options)})"
    names = " ".join(f"[{one}]" if one == default else one for one in options)
    about = ABOUT.get(name, "a group of your own")
    return [*wrapped(f"{title}: {about}", width, "", "    "), *wrapped(names or "-", width, "    ")]


def table_lines(rows: Sequence[tuple[str, Described]], width: int) -> list[str]:
    """A row for each option: name, purpose and papers."""
    names = max((len(name) for name, _ in rows), default=0) + 2
    wide = width >= WIDE and width - names - PAPER - 2 >= LEAST
    lines: list[str] = []
    for name, one in rows:
        papers = ", ".join(one.papers)
        if wide:
            text = width - names - PAPER - 2
            left = wrapped(one.purpose or "-", text, "")
            right = wrapped(papers, PAPER, "")
            lines += _beside(name, names, left, text, right)
        else:
            named = bool(papers) and any(paper.split()[0] not in one.purpose for paper in one.papers)
            purpose = f"{one.purpose or '-'} [{papers}]" if named else one.purpose or "-"
            lines += defined(name, purpose, names, width)
    return lines


def option_lines(one: Described, width: int, page: str, config_dirs: Sequence[str] = ()) -> list[str]:
    """Everything about an option, in lines of `width` columns; `page` is the path of its page in docs/, or ""."""
    option, doc = one.option, one.doc
    lines = [option.setting]
    repeated = bool(doc.body) and " ".join(doc.body[0].split())[:25] == (one.about or ("",))[0][:25]
    for paragraph in one.about[1:] if repeated and option.about else one.about:
        lines += _paragraph(paragraph, width)
    body = doc.body if option.about else doc.body[1:]
    for paragraph in body:
        lines += ["", *_paragraph(paragraph, width)]
    for title, text in (("measures", one.measures), ("use", doc.use), ("source", one.source)):
        lines += ["", title, *wrapped(text, width, "    ")] if text else []
    if option.sets:
        pairs = " ".join(f"{group}={name}" for group, name in option.sets.items() if group != "base")
        lines += ["", "sets", *wrapped(pairs or "-", width, "    ")]
    if one.settings:
        lines += ["", "keys, and their defaults"]
        column = min(28, max(len(f"{key.name}={key.default}") for key in one.settings) + 2)
        for key in one.settings:
            lines += [f"    {line}" for line in defined(f"{key.name}={key.default}", key.comment, column, width - 4)]
    lines += ["", "try", *(f"    {with_config_dirs(command, config_dirs)}" for command in commands(one))]
    lines += ["", "where", f"    {one.definition.name if one.definition else option.target}"] if option.target else []
    lines += wrapped(f"but {one.lost}", width, "    ") if one.lost else []
    lines += [f"    {page}"] if page else []
    return lines


def commands(one: Described) -> list[str]:
    """Commands that use the option; keys of a part without a default have to be set, which they show."""
    if one.option.commands:
        return list(one.option.commands)
    group, name = one.option.group.partition("/")[0], one.option.name
    setting = one.option.setting
    elsewhere = {
        "table": f"reproduce {name}",
        "table_scale": f"reproduce PAPER/NAME scale={name}",
        "analysis": f"analyze {setting} run=DIR",
        "autoencoder": f"encode {setting} dataset=NAME",
        "format": f"export run=DIR {setting}",
        "metric": f"train 'metrics.names=[{name}]'",
    }
    if group in elsewhere:
        return [f"diffusion-lab {elsewhere[group]}"]
    word = f"{one.owner} {setting}" if one.owner else setting
    word += "".join(f" {group}.{name}=PLACE" for name in one.needed)
    many = "-m " if group == "experiment" else ""
    lines = [f"diffusion-lab train {many}{word}"]
    if group in ("sampler", "weighting", "schedule"):
        lines.append(f"diffusion-lab show {word}")
    return lines


def with_config_dirs(command: str, config_dirs: Sequence[str]) -> str:
    """`diffusion-lab COMMAND ...` with a --config-dir for each folder, after the name of the command."""
    own = "".join(f" --config-dir {shlex.quote(folder)}" for folder in config_dirs)
    return re.sub(r"^(diffusion-lab [a-z]+)", lambda match: match[1] + own, command)


def defined(name: str, text: str, column: int, width: int) -> list[str]:
    """A name and a text beside it, from `column` on; under it where the name is too long or the width too small."""
    if width - column < LEAST:
        return [name, *wrapped(text, width, "    ")]
    lines = wrapped(text, width - column, "") or [""]
    if len(name) + 2 > column:
        return [name, *(" " * column + line for line in lines if line)]
    return [f"{name:<{column}}{lines[0]}".rstrip(), *(" " * column + line for line in lines[1:])]


def wrapped(text: str, width: int, indent: str, further: str | None = None) -> list[str]:
    """A text in lines of at most `width`, where no single word is longer."""
    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _paragraph(text: str, width: int) -> list[str]:
    """A paragraph wrapped to the width; a formula line by line, as it is written, and if it is too wide, divided."""
    if not text.startswith("    "):
        return wrapped(text, width, "    ")
    lines = text.split("\n")
    if max(map(len, lines)) + 4 <= width:
        return [f"    {line}" for line in lines]
    column = _column(lines)
    if column is None:
        return [part for line in lines for part in _divided(line, width)]
    rows: list[list[str]] = []
    for line in lines:
        term, rest = line[:column].strip(), re.sub(r" {2,}", "  ", line[column:].strip())
        if term or not rows:
            rows.append([term, rest])
        else:
            rows[-1][1] += f" {rest}"
    return [f"        {part}" for term, rest in rows for part in defined(term, rest, column - 4, width - 8)]


def _column(lines: Sequence[str]) -> int | None:
    """Where the texts of a list of terms begin; None if the lines are none: each term, and each further line of a text,
    ends in a gap before it."""
    first = re.match(r" +\S+ {2,}(?=\S)", lines[0])
    column = first.end() if first and len(lines) > 1 else None
    listed = column and all(line[column - 2 : column] == "  " and line[column : column + 1].strip() for line in lines)
    return column if listed else None


def _divided(line: str, width: int) -> list[str]:
    """A line of a formula; one that is too long is divided at its gaps."""
    line = f"    {line}"
    indent = " " * (len(line) - len(line.lstrip()))
    lines = [""]
    for part, gap in re.findall(r"(\S+(?: \S+)*)( {2,}|$)", line):
        if lines[-1].strip() and len(lines[-1] + part) > width:
            lines.append(f"{indent}    ")
        lines[-1] += (part if lines[-1] else f"{indent}{part}") + gap
    return [one for part in lines for one in _whole(part.rstrip(), width, indent)]


def _whole(line: str, width: int, indent: str) -> list[str]:
    return [line] if len(line) <= width else wrapped(line, width, "", f"{indent}    ")


def _beside(name: str, names: int, left: Sequence[str], text: int, right: Sequence[str]) -> list[str]:
    rows = itertools.zip_longest([name], left, right, fillvalue="")
    return [f"{one:<{names}}{two:<{text}}  {three}".rstrip() for one, two, three in rows]
