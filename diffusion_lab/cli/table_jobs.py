"""The jobs of a table at a scale: the words of `diffusion-lab train` for each model of each row, column and seed.

A job is composed twice: as the paper has it, to know its run's length and its parts, and at the scale, with what stands
in for them. At paper scale the two are one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import choices_of, compose_train, config_hash, plain_value, run_name, with_value
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.output_folders import PLACES
from diffusion_lab.runs.identity import leaves
from diffusion_lab.runs.shell_commands import key_of, setting
from diffusion_lab.tables.table import Table, TableColumn, TableModel, TableRow
from diffusion_lab.tables.table_scale import TableScale, scaled_cells, scaled_decay, scaled_length, scaled_period

# Lengths of a run's parts, in optimizer steps, wherever they are in its configuration.
LENGTHS = ("total_steps", "target_steps", "warmup_steps", "update_every", "first")


class Job(NamedTuple):
    """One training of a table.

    Attributes:
        row, column: which.
        model: number of the model among those of the row.
        seed: of the entry; the run's own is the model's further on.
        words: of `diffusion-lab train`.
        folder: name of its run folder.
        steps: optimizer steps of the column's cells.
        config: the composed configuration, of this seed or of another.
    """

    row: TableRow
    column: TableColumn
    model: int
    seed: int
    words: tuple[str, ...]
    folder: str
    steps: tuple[int, ...]
    config: DictConfig


class Jobs:
    """Composes the jobs of a table.

    Args:
        table: the table.
        scale: the scale.
        further: words of the command line, which win.
        config_dirs: folders of the user's own yaml files.

    Raises:
        ConfigError: a further word takes the place of what distinguishes rows, columns or cells.
    """

    def __init__(
        self, table: Table, scale: TableScale, further: Sequence[str] = (), config_dirs: Sequence[str] = ()
    ) -> None:
        check_further(table, further)
        self.table, self.scale, self.further, self.config_dirs = table, scale, tuple(further), tuple(config_dirs)
        self._longest: int | None = None
        self._composed: dict[tuple[str, ...], DictConfig] = {}  # words -> configuration

    def of(
        self, rows: Sequence[TableRow], seeds: Sequence[int], starts: dict[tuple[str, str, int], Path]
    ) -> Iterator[Job]:
        """The jobs of rows, by column, row and seed.

        Args:
            rows: of the table, all of which start from new weights or from a run in `starts`.
            seeds: of the entries.
            starts: (row, column, seed) -> the run folder from which rows that start there go on; seeds without one are
                left out.
        """
        if any("." not in key_of(word) for word in self.further):
            words = (
                self.paper_words(column, row, model)
                for row in self.table.rows
                for column in self.table.columns_of(row)
                for model in row.models
            )
            check_choices(self.table, self.further, [choices_of(self._compose(own)) for own in words])
        for column in self.table.columns:
            for row in (row for row in rows if column in self.table.columns_of(row)):
                for number, model in enumerate(row.models):
                    yield from self._of_model(column, row, number, model, seeds, starts)

    def _of_model(
        self,
        column: TableColumn,
        row: TableRow,
        number: int,
        model: TableModel,
        seeds: Sequence[int],
        starts: dict[tuple[str, str, int], Path],
    ) -> Iterator[Job]:
        paper = self.paper_words(column, row, model)
        words, steps, config = self._at_scale(paper, column, model)
        for seed in seeds:
            own = f"seed={seed + model.seed}"
            if row.start and (row.start, column.name, seed) not in starts:
                continue
            if row.start:
                start = setting("init_from", f"{starts[row.start, column.name, seed]}:raw")
                words, config = merged([*words, start]), self._compose([*merged([*words, start]), own])
            cfg = config if config.seed == seed + model.seed else with_value(config, "seed", seed + model.seed)
            folder = f"{run_name(cfg)}-{config_hash(cfg)[:8]}"
            yield Job(row, column, number, seed, (*words, own), folder, tuple(steps), config)

    def paper_words(self, column: TableColumn, row: TableRow, model: TableModel) -> list[str]:
        """The words of a job as the paper has it, without its seed."""
        experiment = f"experiment={row.experiment or column.experiment or self.table.experiment}"
        return merged([experiment, *column.overrides, *model.overrides, *row.within.get(column.name, ())])

    def _at_scale(
        self, paper: list[str], column: TableColumn, model: TableModel
    ) -> tuple[list[str], list[int], DictConfig]:
        """The words without seed, the steps of the cells, and the configuration."""
        if self.scale.steps is None:
            words = merged([*paper, *self.table.paper, *model.paper, *self.further])
            config = self._compose(words)
            steps = [config.max_steps] if self.table.equal_steps else [min(at, config.max_steps) for at in column.at]
            return words, steps, config
        published = self._compose(paper)
        longest = published.max_steps if self.table.equal_steps else self.longest()
        steps = max(1, round(self.scale.steps / longest * published.max_steps))
        at = (
            tuple(step * published.max_steps // column.at[-1] for step in column.at)
            if self.table.equal_steps
            else column.at
        )
        every, cells = scaled_cells(at, steps, published.max_steps)
        words = merged([*paper, *self._stand_ins(published), *_lengths(published, steps, every)])
        words = merged([*words, *self.scale.overrides, *self.table.scaled, *model.scaled, *self.further])
        words = merged([*words, *self._corrections(published, self._compose(words), steps)])
        return words, cells, self._compose(words)

    def longest(self) -> int:
        """Optimizer steps of the table's longest run as the paper has it."""
        if self._longest is None:
            presets: dict[tuple[str, str], list[str]] = {}
            for row in self.table.rows:
                for column in self.table.columns_of(row) if row.models else ():
                    words = self.paper_words(column, row, row.models[0])
                    presets.setdefault((words[0], column.name), words)
            self._longest = max(int(self._compose(words).max_steps) for words in presets.values())
        return self._longest

    def _compose(self, words: Sequence[str]) -> DictConfig:
        """The configuration of `diffusion-lab train` with these words, which takes 0.2 s and is made once."""
        key = tuple(words)
        if key not in self._composed:
            self._composed[key] = compose_train(key, Path("runs/composed"), self.config_dirs)
        return self._composed[key]

    def _stand_ins(self, published: DictConfig) -> list[str]:
        """Data, network, learning rate and solver of the scale, for those of the paper."""
        choices = choices_of(published)
        words = [f"{group}={self.scale.option(group, str(choices.get(group)))}" for group in self.scale.options]
        words.append(f"optimizer.lr={published.optimizer.lr * self.scale.lr:g}" if "lr" in published.optimizer else "")
        solver = published.get("solver")
        if solver is not None and self.scale.solver_steps is not None:
            most = solver.get("steps") or published.schedule.num_timesteps
            words.append(f"solver.steps={min(most, self.scale.solver_steps)}")
        return [word for word in words if word]

    def _corrections(self, published: DictConfig, here: DictConfig, steps: int) -> list[str]:
        """Words for lengths that are not in proportion yet, and for the periods of methods."""
        papers, ours = lengths(published), lengths(here)
        wanted = {key: scaled_length(value, steps, published.max_steps) for key, value in papers.items() if key in ours}
        for key in self.table.periods:
            period = OmegaConf.select(published, key)
            if isinstance(period, int):
                wanted[key] = scaled_period(period, steps, published.max_steps)
        return [f"{key}={value}" for key, value in wanted.items() if OmegaConf.select(here, key) != value]


def lengths(cfg: DictConfig) -> dict[str, int]:
    """Dotted key -> optimizer steps, of all `LENGTHS` in a configuration."""
    parts = ("weighting", "sampler", "annealing", "preconditioning")
    found = [leaf for part in parts for leaf in leaves(plain_value(cfg, part), part).items()]
    return {key: value for key, value in found if key.rpartition(".")[2] in LENGTHS and type(value) is int}


def _lengths(published: DictConfig, steps: int, every: int) -> list[str]:
    """The length of the run, its evaluations, and the average that looks back over the same share of it."""
    words = [f"max_steps={steps}", f"snapshot_every={every}", f"checkpoint_every={every}", f"keep_every={every}"]
    words.append("metrics_every=0")
    average = published.callbacks.get("ema")
    if average is not None:
        decays = [scaled_decay(decay, steps, published.max_steps) for decay in average.decays]
        words.append(f"callbacks.ema.decays=[{','.join(f'{decay:g}' for decay in decays)}]")
    return words


def merged(words: Sequence[str]) -> list[str]:
    """The words in order, of several for one key the last, in the place of the first."""
    by_key: dict[str, str] = {}
    for word in words:
        by_key[key_of(word)] = word
    return list(by_key.values())


# What the command's own words decide: setting -> what to use instead.
PLACED = "paths.root, below which plan, runs and pages are"
DECIDED = {"seed": "--seeds", "max_steps": "another scale", "snapshot_every": "another scale"}
DECIDED |= dict.fromkeys([key for key in PLACES if key not in ("resume", "paths.root")], PLACED)
DECIDED |= {"paths.run_dir": PLACED, "resume": "the same command, which goes on"}
DECIDED |= dict.fromkeys(["hydra/sweeper", "hydra.sweeper.file"], "--only and --seeds")


def check_further(table: Table, further: Sequence[str]) -> None:
    """Raise ConfigError if a setting of all runs takes the place of what distinguishes rows, columns or cells: the
    table would name rows that were not trained."""
    own = {*keys_of(table.rows, table.columns), "experiment"}
    for word in further:
        if key_of(word) in own:
            raise ConfigError(f"{word} must be left to the rows and columns of {table.name}; use a table of your own")
        if key_of(word) in DECIDED:
            raise ConfigError(f"{word} must be left to the table; use {DECIDED[key_of(word)]}")


def check_choices(table: Table, further: Sequence[str], choices: Sequence[Mapping[str, object]]) -> None:
    """Raise ConfigError if an option of all runs is one in which rows differ, `sampler=..` where they have another
    `method`; `choices` has group -> option of each row in each column."""
    for word in further:
        if len({str(own.get(key_of(word))) for own in choices}) > 1:
            raise ConfigError(f"{word} must be left to the rows and columns of {table.name}; use a table of your own")


def keys_of(rows: Sequence[TableRow], columns: Sequence[TableColumn]) -> set[str]:
    """The settings that distinguish rows and columns."""
    words = [word for row in rows for model in row.models for word in model.overrides]
    words += [word for row in rows for own in row.within.values() for word in own]
    return {key_of(word) for word in (*words, *(word for column in columns for word in column.overrides))}
