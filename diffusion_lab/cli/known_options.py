"""Options that a command does not have, in one sentence with the one that was probably meant."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from itertools import takewhile

from diffusion_lab.cli.errors import ConfigError, nearest, refuse


def check_options(words: Sequence[str], *parsers: ArgumentParser) -> None:
    """Check that one of a command's parsers has each option among its words, in full or as the beginning of one.

    Raises:
        ConfigError: names the first that it does not have.
    """
    every = {option: parser for parser in parsers for action in parser._actions for option in action.option_strings}
    known = {option: parser for option, parser in every.items() if option.startswith("--")}
    for word in takewhile(lambda word: word != "--", words):
        name = word.partition("=")[0]
        short = any(option.startswith(name) and parser.allow_abbrev for option, parser in known.items())
        if name.startswith("--") and name not in known and not short:
            raise ConfigError(f"{name} must be an option of this command{nearest(name, known)}; --help lists them")


def parsed(parser: ArgumentParser, words: Sequence[str]) -> Namespace:
    """The options of a command.

    Raises:
        SystemExit: they were refused, or --help was asked for; what there is to say is printed.
    """
    try:
        check_options(words, parser)
    except ConfigError as error:
        raise SystemExit(refuse(error)) from error
    return parser.parse_args(words)
