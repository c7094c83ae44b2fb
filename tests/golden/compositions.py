"""Names and hashes of presets, without training: each option alone, the first jobs of each experiment, rounds, tables.

A round takes one option of every group, so that few compositions hold every option: what the quick suite can afford.
Rounds are read from the file, not made anew: an option that is added later changes no stored one.

Options of a part are composed on BASE, so that other defaults in train.yaml change none of them. Methods and
experiments are composed as they are typed: they state their base themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.config import compose_train, conf_dir, config_hash, group_hash, run_name, sweep_name
from diffusion_lab.cli.table_files import load_scale, load_table, scale_names, table_names
from diffusion_lab.cli.table_jobs import Jobs

PRESETS = ("method", "scale", "debug")
KINDS = ("rounds", "options", "jobs")
BASE = "base=ddpm"
WHOLE_SCALE = "mini"  # of which every job of every table is stored, of the others the first row's
# Where a group that stands inside another one goes.
INSIDE = {
    "prediction/space": ["prediction=mixed"],
    "prediction/granularity": ["prediction=mixed"],
    "prediction/reduction": ["prediction=mixed"],
    "prediction/generation_head": ["prediction=mixed"],
    "solver/spacing": ["solver=euler"],
    "sampler@sampler.base": ["sampler=stratified"],
}


def names(group: str) -> list[str]:
    """The options of a group; a folder inside it is a group of its own, but for presets."""
    folder = conf_dir() / group.partition("@")[0]
    files = folder.glob("**/*.yaml" if group in (*PRESETS, "experiment") else "*.yaml")
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in files)


def composed(overrides: list[str]) -> Any:
    """The training configuration; the folder is in no hash."""
    return compose_train(overrides, Path("runs/run"))


def identity(overrides: list[str]) -> list[str]:
    """Name, config hash and group hash; of an experiment's job the folder of the sweep too."""
    cfg = composed(overrides)
    found = [run_name(cfg), config_hash(cfg), group_hash(cfg)]
    return [*found, sweep_name(cfg)] if any(word.startswith("experiment=") for word in overrides) else found


def on_base(words: list[str]) -> list[str]:
    """The overrides of an option with BASE; without it a method, which states its own, and the defaults themselves."""
    return words if not words or words[0].startswith("method=") else [BASE, *words]


def table_places() -> list[str]:
    """`PAPER/NAME SCALE` of every table at every scale."""
    return [f"{table} {scale}" for table in table_names([conf_dir()]) for scale in scale_names([conf_dir()])]


def table_identities(place: str) -> dict[str, list[str]]:
    """`PAPER/NAME SCALE ROW COLUMN MODEL` -> name, config hash and group hash of what `reproduce` trains there."""
    (table_name, scale_name), folders = place.split(), [conf_dir()]
    table, scale = load_table(table_name, folders), load_scale(scale_name, folders)
    rows = [row for row in table.rows if scale_name not in row.absent]
    rows = rows if scale_name == WHOLE_SCALE else rows[:1]
    starts = {(row.start, column.name, 0): Path("start") for row in rows for column in table.columns_of(row)}
    return {
        f"{place} {job.row.name} {job.column.name} {job.model}": [
            run_name(job.config),
            config_hash(job.config),
            group_hash(job.config),
        ]
        for job in Jobs(table, scale).of(rows, [0], starts)
    }


def wanted() -> dict[str, list[list[str]]]:
    """What is stored anew, as lists of overrides: the rounds, every option alone, and jobs of every experiment."""
    options = {group: names(group) for group in part_groups()}
    rounds = [
        [f"{group}={found[i % len(found)]}" for group, found in options.items()]
        for i in range(max(map(len, options.values())))
    ]
    alone = [[], *([f"{group}={name}"] for group in [*options, *PRESETS] for name in names(group))]
    alone += [[*before, f"{group}={name}"] for group, before in INSIDE.items() for name in names(group)]
    return {"rounds": rounds, "options": alone, "jobs": [job for name in names("experiment") for job in jobs(name)]}


def jobs(experiment: str) -> Iterator[list[str]]:
    """The first job of an experiment's sweep, then those that differ from it in one swept key alone."""
    word = f"experiment={experiment}"
    sweeper = composed([word]).hydra.sweeper
    params = {**(sweeper.params or {}), **(sweeper.get("products") or [{}])[0]}
    parsed = OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in params.items()])
    values = [[f"{o.get_key_element()}={v}" for v in _values(o)] for o in parsed]
    first = [found[0] for found in values]
    yield [word, *first]
    for i, found in enumerate(values):
        yield from ([word, *first[:i], other, *first[i + 1 :]] for other in found[1:])


def _values(override: Any) -> Iterator[str]:
    if not override.is_sweep_override():
        return iter([str(override.get_value_element_as_str())])
    return itertools.chain(override.sweep_string_iterator())


def key(overrides: list[str]) -> str:
    """How a composition is called in the file: its overrides as one would type them."""
    return " ".join(overrides)


def rounds_to_store(stored: list[list[str]], new: list[list[str]]) -> list[list[str]]:
    """The stored rounds of options that still exist, and those new ones that hold an option of no stored round."""
    exist = {word for words in new for word in words}
    kept = [words for words in stored if set(words) <= exist]
    seen = {word for words in kept for word in words}
    return kept + [words for words in new if not set(words) <= seen]
