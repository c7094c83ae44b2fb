"""Writes a page for every option of the groups of parts: `docs/options/GROUP/NAME.md`.

    python -m experiments.option_pages            write the stale ones, with a new option's figure (`make pages`)
    python -m experiments.option_pages --check    name the stale ones; exit code 1 if there are any

A page has what `diffusion-lab list GROUP=NAME` says, from yaml file and docstring; the picture of what it trains on for
what changes that (`option_figures`); and what was measured, from the committed values of our studies.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import Described, described
from diffusion_lab.cli.options.files import Option
from diffusion_lab.cli.options.groups import ABOUT
from diffusion_lab.cli.options.text import commands
from experiments.option_measured import measured

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "options"
DRAWN = ("sampler", "weighting")  # they change which noise is trained on, alone
CAPTION = {
    "sampler": "*How often a timestep is drawn on the cosine and the linear schedule, by t and by ln SNR.*",
    "weighting": "*The weight by t and by ln SNR, on the cosine and the linear schedule, as a factor on the eps-loss "
    "of a model that predicts eps.*",
}
MEASURED = (
    "*The share of the training objective by ln SNR on the cosine and the linear schedule: mean over this sampler's "
    "runs in the study with eps and unit weighting, beside that of uniform (dotted); the outermost bins hold all "
    "beyond.*"
)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page's path and text."""
    folders = [conf_dir()]
    yield FOLDER / "README.md", _overview(folders)
    for group in groups():
        found = {name: described(group, name, folders) for name in files.options(group, folders)}
        yield FOLDER / group / "README.md", _index(group, found, files.default(group, folders))
        for name, one in found.items():
            yield FOLDER / group / f"{name}.md", _page(one)


@cache
def groups() -> tuple[str, ...]:
    """The groups with pages: those of which every option builds a part, or sets parts of other groups.

    Experiments and tables, whose folders are papers, are described by their studies."""
    folders = [conf_dir()]

    def of_parts(group: str) -> bool:
        options = [files.read_option(group, name, folders) for name in files.options(group, folders)]
        return all(option.target or option.inside or option.sets for option in options)

    return tuple(group for group in ABOUT if not files.of_presets(group) and of_parts(group))


def _overview(folders: list[Path]) -> str:
    pages = [
        f"| [{group}]({group}/README.md) | {_cell(ABOUT[group])} | {len(files.options(group, folders))} |"
        for group in groups()
    ]
    others = [
        f"| {group} | {_cell(about)} | {', '.join(found)} |"
        for group, about in ABOUT.items()
        if group not in groups() and (found := files.options(group, folders))
    ]
    parts = [
        "# Options",
        _made(),
        "Every part is one Python file and one yaml whose keys are the constructor's arguments. "
        "Each option of these groups has a page:",
        "\n".join(["| group | what it is | options |", "| --- | --- | ---: |", *pages]),
        "Other groups have no pages: `diffusion-lab list GROUP` says what each option is, "
        "`diffusion-lab list GROUP=NAME` its keys.",
        "\n".join(["| group | what it is | options |", "| --- | --- | --- |", *others]),
    ]
    return "\n\n".join(parts) + "\n"


def _index(group: str, found: dict[str, Described], default: str) -> str:
    rows = [
        f"| [{name}]({name}.md) | {_cell(one.purpose)}{' (the default)' if name == default else ''} "
        f"| {_cell(', '.join(one.papers))} |"
        for name, one in found.items()
    ]
    table = "\n".join(["| option | purpose | paper |", "| --- | --- | --- |", *rows])
    return f"# {group}: {ABOUT[group]}\n\n{_made()}\n\n{table}\n"


def _page(one: Described) -> str:
    option = one.option
    about, body = _text(one)
    parts = [f"# {option.setting}", _made(), *about]
    if one.doc.use:
        parts += ["## When to use it", one.doc.use[0].upper() + one.doc.use[1:]]
    picture = FOLDER / option.group / f"{option.name}.svg"
    if picture.is_file():
        measures = "<!-- objective -->" in picture.read_text("utf-8")  # a label of the figure of a sampler that changes
        said = MEASURED if measures else CAPTION[option.group]
        words = " and ".join(f"`{word}`" for word in beside(option))
        body += [f"![What {option.setting} trains on]({picture.name})", said + (f" *With {words}.*" if words else "")]
    if body:
        parts += ["## What it does", *body]
    if found := measured(option.group, option.name):
        parts += ["## What we measured", found]
    sets = [_linked(option.group, group, name) for group, name in option.sets.items() if group != "base"]
    if sets:
        parts += ["## What it sets", f"{', '.join(sets)}; formula and keys are on their pages."]
    keys = [key for key in one.settings if key.default != "{...}"]
    if keys:
        rows = [f"| `{key.name}` | `{key.default}` | {_cell(key.comment)} |" for key in keys]
        parts += ["## Keys", "\n".join(["| key | default | meaning |", "| --- | --- | --- |", *rows])]
    parts += ["## Try it", "\n".join(f"    {command}" for command in commands(one))]
    if one.source:
        parts += ["## Source", one.source]
    if one.definition:
        parts.append(f"In the code: `{one.definition.name}`.")
    return "\n\n".join(parts) + "\n"


def beside(option: Option) -> list[str]:
    """What the first `train` of the option's file sets besides the option: its picture is drawn with that."""
    trainings = (words[2:] for command in option.commands if (words := shlex.split(command))[1] == "train")
    return [word for word in next(trainings, []) if word != option.setting]


def _linked(here: str, group: str, name: str) -> str:
    """`group=name`, with a link from a page of the group `here` to its page if it has one."""
    page = FOLDER / group / f"{name}.md"
    linked = group in groups() and name != "null"
    return f"[`{group}={name}`]({os.path.relpath(page, FOLDER / here)})" if linked else f"`{group}={name}`"


def _text(one: Described) -> tuple[list[str], list[str]]:
    """Comment of the file and docstring; where both begin alike, the comment's first paragraph is the docstring's."""
    about, doc = list(one.about), list(one.doc.body if one.option.about else one.doc.body[1:])
    if about and doc and " ".join(doc[0].split())[:25] == about[0][:25] and not doc[0].endswith(":"):
        about[0] = doc.pop(0)
    return [_flow(paragraph) for paragraph in about], [_flow(paragraph) for paragraph in doc]


def _flow(paragraph: str) -> str:
    """A paragraph in one line; a formula stays as it is written."""
    return paragraph if paragraph.startswith("    ") else _escaped(" ".join(paragraph.split()))


def _cell(text: str) -> str:
    return _escaped(text.replace("|", "\\|"))


def _escaped(text: str) -> str:
    """Without what a browser would read as a tag; in code it does not."""
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def _made() -> str:
    return "<!-- made by `make pages` from yaml files, docstrings and committed values: edit those -->"


def stale() -> list[Path]:
    """Pages that are not what they would be now, and those of options that are gone."""
    wanted = dict(pages())
    old = [path for path in FOLDER.glob("**/*.md") if path not in wanted]
    return old + [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]


def main(arguments: list[str]) -> int:
    """Write the stale pages, or name them."""
    check, old = "--check" in arguments, stale()
    if not check:
        from experiments import option_figures  # which imports this module

        for page in old:
            if page.parent.name in DRAWN and page.name != "README.md" and not page.is_file():
                option_figures.write(page.parent.name, page.stem)
    wanted = dict(pages())  # with these figures
    for page in old:
        print(f"{'stale' if check else 'written'}: {page.relative_to(FOLDER.parents[1])}")
    if check:
        return int(bool(old))
    for page in old:
        if page not in wanted:
            page.unlink()
            continue
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(wanted[page], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
