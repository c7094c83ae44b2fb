"""The presets of a paper's table train the same runs as the rows of the table, so that neither is trained twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from diffusion_lab.cli.config import config_hash
from diffusion_lab.cli.hydra_version import initialized
from tests.conf.paper_jobs import cells, job, tables
from tests.conf.test_options import composed, options

TABLES = {name: table for name, table in tables().items() if table.kind == "table"}
ABSENT = {row.experiment for table in TABLES.values() for row in table.rows if "paper" in row.absent}
PRESETS = [(preset, name) for preset in options("experiment") for name in TABLES if preset.startswith(name)]


def _swept(preset: str) -> Iterator[list[str]]:
    """The words of every job of a preset's sweep."""
    from hydra import compose

    with initialized():
        hydra = compose("train", overrides=[f"experiment={preset}"], return_hydra_config=True).hydra
    params = {key: str(values).split(",") for key, values in (hydra.sweeper.params or {}).items()}
    for values in itertools.product(*params.values()):
        yield [f"experiment={preset}", *(f"{key}={value}" for key, value in zip(params, values, strict=True))]


@pytest.mark.pages
@pytest.mark.parametrize(("preset", "name"), [(preset, name) for preset, name in PRESETS if preset not in ABSENT])
def test_every_job_of_a_preset_is_a_row_of_its_table(preset, name):
    rows = {config_hash(job(name, cell)) for cell in cells(tables()[name])}
    swept = {config_hash(composed(*words)): words for words in _swept(preset)}
    assert [words for hashed, words in swept.items() if hashed not in rows] == []


@pytest.mark.slow
def test_a_job_with_another_setting_is_no_row():
    name = "clts_mdlrc/table3"
    rows = {config_hash(job(name, cell)) for cell in cells(tables()[name])}
    assert config_hash(composed(f"experiment={name}", "method=iddpm")) in rows
    assert config_hash(composed(f"experiment={name}", "method=iddpm", "optimizer.lr=2.0e-4")) not in rows
