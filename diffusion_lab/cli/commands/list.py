"""`diffusion-lab list [GROUP | NAME | GROUP=NAME ..]`: what can be chosen, with formula, paper, use and keys.

Read from the yaml files and docstrings as text; neither Hydra nor torch nor a class of the user's is imported.
"""

from __future__ import annotations

import argparse
import difflib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.cli.command_line import parsed
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import Described, described
from diffusion_lab.cli.options.groups import ABOUT
from diffusion_lab.cli.options.text import group_lines, option_lines, table_lines, with_config_dirs, wrapped
from diffusion_lab.cli.targets import own_folders

PRESETS = ("method", "experiment", "task", "scale", "analysis")  # named after the part that they use
READABLE = 110  # columns; longer lines are hard to read


def main(argv: list[str]) -> int:
    """Print the groups, or what each word names; returns 0."""
    given = parsed(_parser(), argv)
    width = min(shutil.get_terminal_size((READABLE, 24)).columns, READABLE)
    print("\n".join(_answer(given.words, given.config_dir, width)))
    return 0


def completions(word: str) -> list[str]:
    """Groups, and options as `group=name` once the group is typed, that begin with the word."""
    folders = [conf_dir()]
    group, equals, _ = word.partition("=")
    if equals:
        every = [f"{group}={name}" for name in files.options(group, folders)]
    else:
        every = files.groups(folders)
    return [one for one in every if one.startswith(word)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="diffusion-lab list",
        description="What can be chosen. Without a word: all groups and their options; with a group: its options with "
        "purpose and paper; with an option: formula, use, paper, keys with defaults, and the command to try it",
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="a group, an option, or group=option")
    parser.add_argument("--config-dir", "-cd", action="append", default=[], metavar="DIR", help="your own yaml files")
    return parser


class _Places(NamedTuple):
    """Where options and classes are looked for.

    Attributes:
        config_dirs: given with --config-dir, which the printed commands repeat.
        folders: with the yaml files, the package's first.
        modules: folders with the user's own modules.
        width: columns of the terminal.
    """

    config_dirs: list[str]
    folders: list[Path]
    modules: tuple[Path, ...]
    width: int

    def described(self, group: str, option: str) -> Described:
        return described(group, option, self.folders, self.modules)

    def lines_of(self, group: str, option: str) -> list[str]:
        return option_lines(self.described(group, option), self.width, "", self.config_dirs)

    def next(self, *words: str) -> list[str]:
        commands = [with_config_dirs(f"diffusion-lab list {word}", self.config_dirs) for word in words]
        return ["", *wrapped(f"Next: {', '.join(commands)}", self.width, "")]


def _answer(words: Sequence[str], config_dirs: list[str], width: int) -> list[str]:
    places = _Places(config_dirs, [conf_dir(), *map(Path, config_dirs)], own_folders(config_dirs), width)
    if not words:
        return _overview(places)
    lines: list[str] = []
    for word in words:
        lines += ["", ""] if lines else []
        lines += _named(word, places)
    return lines


def _overview(places: _Places) -> list[str]:
    folders, width = places.folders, places.width
    lines = ["Groups, the number of their options, and their names; [the default].", ""]
    for group in files.groups(folders):
        lines += group_lines(group, files.options(group, folders), files.default(group, folders), width)
    return [*lines, *places.next("sampler", "sampler=mode")]


def _named(word: str, places: _Places) -> list[str]:
    """What a word names: a group, else an option of one group or of several."""
    folders, width = places.folders, places.width
    groups = files.groups(folders)
    group, equals, name = word.strip().rstrip("/").partition("=")
    if not equals and group in groups:
        return _group(group, places)
    found = [
        (one, option)
        for one in groups
        for option in files.options(one, folders)
        if (option == name and one == group if equals else option == group)
    ]
    if not found:
        raise ConfigError(_unknown(word, group, name if equals else None, groups, folders))
    parts = [(one, option) for one, option in found if one not in PRESETS]
    if len(parts) == 1 < len(found):  # sampler=infonoise, with method=infonoise, which uses it
        others = ", ".join(f"{one}={option}" for one, option in found if one in PRESETS)
        return [*places.lines_of(*parts[0]), "", *wrapped(f"Of the same name: {others}", width, "")]
    if len(found) > 1:
        rows = [(f"{one}={option}", places.described(one, option)) for one, option in found]
        return [f"{group} is an option of {len(rows)} groups:", "", *table_lines(rows, width)]
    return places.lines_of(*found[0])


def _group(group: str, places: _Places) -> list[str]:
    folders, width = places.folders, places.width
    names = files.options(group, folders)
    rows = [(name, places.described(group, name)) for name in names]
    chosen, below = files.default(group, folders), [g for g in files.groups(folders) if g.startswith(f"{group}/")]
    lines = wrapped(f"{group}: {ABOUT.get(group, 'a group of your own')}", width, "")
    lines += wrapped(f"default {chosen}", width, "") if chosen else []
    lines += ["", *table_lines(rows, width)]
    lines += ["", *wrapped(f"groups below it: {', '.join(below)}", width, "")] if below else []
    return [*lines, *places.next(f"{group}={chosen or (names or ['NAME'])[0]}")]


def _unknown(word: str, group: str, name: str | None, groups: Sequence[str], folders: Sequence[Path]) -> str:
    """One sentence with what is close to a word that names nothing."""
    if name is not None and group in groups:
        options = files.options(group, folders)
        close = difflib.get_close_matches(name, options, n=3) or options
        return f"list {word} must name an option of {group}; use {', '.join(close)}"
    if name is not None:
        close = difflib.get_close_matches(group, groups, n=3)
        return f"list {word} must name a group before the =; use {', '.join(close) or 'diffusion-lab list for all'}"
    every = {f"{one}={option}": option for one in groups for option in files.options(one, folders)}
    near = difflib.get_close_matches(group, [*groups, *every.values()], n=3)
    close = [one for one in near if one in groups] + [key for key, option in every.items() if option in near]
    cure = f"use {', '.join(close)}" if close else "`diffusion-lab list` has all of them"
    return f"list {word} must name a group or an option; {cure}"
