"""The words after `diffusion-lab reproduce PAPER/TABLE`: settings of all runs, and those that a table cannot take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from diffusion_lab.cli.errors import ConfigError

if TYPE_CHECKING:
    from diffusion_lab.tables import Table

# What the command's own words decide: setting -> what to use instead.
DECIDED = {"seed": "--seeds", "max_steps": "another scale", "snapshot_every": "another scale"}


def check_further(table: Table, further: Sequence[str]) -> None:
    """No setting of all runs takes the place of what distinguishes rows, columns or cells.

    Raises:
        ConfigError: one does; its table would name rows that were not trained.
    """
    rows = [word for row in table.rows for model in row.models for word in model.overrides]
    rows += [word for row in table.rows for own in row.within.values() for word in own]
    columns = [word for column in table.columns for word in column.overrides]
    own = {key_of(word) for word in (*rows, *columns, "experiment=")}
    for word in further:
        if key_of(word) in own:
            raise ConfigError(f"{word} must be left to the rows and columns of {table.name}; use a table of your own")
        if key_of(word) in DECIDED:
            raise ConfigError(f"{word} must be left to the table; use {DECIDED[key_of(word)]}")


def check_choices(table: Table, further: Sequence[str], choices: Sequence[Mapping[str, object]]) -> None:
    """No option of all runs is one in which rows differ: `sampler=..` where they have another `method`.

    Args:
        table: the table.
        further: the command's settings.
        choices: group -> option of each row in each column, as the paper has them.

    Raises:
        ConfigError: one is.
    """
    for word in further:
        if len({str(own.get(key_of(word))) for own in choices}) > 1:
            raise ConfigError(f"{word} must be left to the rows and columns of {table.name}; use a table of your own")


def key_of(word: str) -> str:
    """The setting of a word: `+seed=3` -> `seed`."""
    return word.partition("=")[0].lstrip("+~")
