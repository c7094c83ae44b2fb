"""Every table at every scale: what it trains is the paper's in proportion, and may run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli import table_jobs
from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.errors import MissingHere
from diffusion_lab.cli.table_files import load_scale, load_table, scale_names, table_names
from diffusion_lab.cli.table_jobs import Job, Jobs, lengths
from diffusion_lab.cli.validate import check
from diffusion_lab.tables import Table

FOLDERS = [conf_dir()]
TABLES = table_names(FOLDERS)
SCALES = scale_names(FOLDERS)


@pytest.fixture(scope="module", autouse=True)
def composed_once() -> Iterator[None]:
    """What the paper has is composed once and not for every scale, which is a third of these tests' time."""
    composed = cache(table_jobs.compose_train)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_jobs, "compose_train", lambda words, folder, own: composed(tuple(words), folder, own))
        yield


@cache
def jobs_of(name: str, scale: str, only: str | None = None) -> list[Job]:
    """The jobs of seed 0 at a scale, of one row or of all that start from new weights and can be trained there."""
    table = load_table(name, FOLDERS)
    rows = [row for row in table.rows if not row.start and scale not in row.absent and only in (row.name, None)]
    return list(Jobs(table, load_scale(scale, FOLDERS)).of(rows, [0], {}))


@cache
def published(name: str) -> dict[tuple[str, str, int], DictConfig]:
    """(row, column, model) -> the configuration as the paper has it."""
    table = load_table(name, FOLDERS)
    jobs, found = Jobs(table, load_scale("paper", FOLDERS)), {}
    for column in table.columns:
        for row in (row for row in table.rows if column in table.columns_of(row)):
            for number, model in enumerate(row.models):
                found[row.name, column.name, number] = jobs._compose(jobs.paper_words(column, row, model))
    return found


def task(cfg: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])


QUICK = "clts_mdlrc/table3"


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == QUICK else pytest.mark.pages) for n in TABLES])
def test_jobs_at_every_scale_are_the_papers_in_proportion_and_may_run(name: str) -> None:
    for scale in SCALES:
        passed: set[str] = set()
        for job in jobs_of(name, scale):
            if job.config.max_steps:  # 0: a trained model from elsewhere, which is analysed as it is
                in_proportion(job, published(name)[job.row.name, job.column.name, job.model], load_table(name, FOLDERS))
            assert max(job.steps) <= job.config.max_steps
            cfg = task(job.config)
            OmegaConf.set_struct(cfg, False)
            cfg.dry_run = cfg.get("prediction") is not None  # a GAN's cost is not estimated
            faults = [fault for fault in check(cfg, passed=passed, here=False) if not isinstance(fault, MissingHere)]
            assert faults == [], " ".join(job.words)


def in_proportion(job: Job, paper: DictConfig, table: Table) -> None:
    """Every length has the paper's share of the run, within one evaluation."""
    cfg = job.config
    within = cfg.snapshot_every / cfg.max_steps
    theirs, ours = lengths(paper), lengths(cfg)
    assert theirs.keys() == ours.keys()
    for key, length in theirs.items():
        assert abs(ours[key] / cfg.max_steps - length / paper.max_steps) <= within, (job.row.name, key)
    if "ema" in cfg.callbacks:
        looks_back = [1 / (1 - one.callbacks.ema.decays[0]) / one.max_steps for one in (cfg, paper)]
        assert abs(looks_back[0] - looks_back[1]) <= within, job.row.name
    whole = job.column.at[-1] if table.equal_steps else paper.max_steps
    for step, at in zip(job.steps, job.column.at, strict=True):
        assert abs(step / cfg.max_steps - at / whole) <= within, job.row.name


def test_a_changed_length_is_noticed() -> None:
    job = next(job for job in jobs_of(QUICK, "mini") if job.row.name == "ours")
    paper, table = published(QUICK)["ours", "cifar10", 0], load_table(QUICK, FOLDERS)
    in_proportion(job, paper, table)
    changed = job._replace(config=job.config.copy())
    OmegaConf.update(changed.config, "sampler.target_steps", 1500)  # of 2000; the paper's is a tenth
    with pytest.raises(AssertionError, match="sampler.target_steps"):
        in_proportion(changed, paper, table)


OF_OURS = [name for name in TABLES if "ours" in {row.name for row in load_table(name, FOLDERS).rows}]
OF_LEARNED_BETA = "adaptive_beta/table4"


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == OF_LEARNED_BETA else pytest.mark.pages) for n in OF_OURS]
)
def test_the_policy_has_its_period(name: str) -> None:
    for job in jobs_of(name, "mini"):
        if "LearnedBeta" in str(job.config.sampler.get("_target_")):
            assert job.config.sampler.every == min(40, max(1, job.config.max_steps // 500))


def test_a_run_that_another_table_has_is_the_same_folder() -> None:
    def folders(name: str, row: str = "ours") -> dict[str, str]:
        return {job.column.name: job.folder for job in jobs_of(name, "mini", row)}

    table1, table4 = folders("adaptive_beta/table1"), folders("adaptive_beta/table4")
    assert table4["linear"] == table1["linear"] != table1["cosine"] == table4["cosine"]
    assert folders("adaptive_beta/figure7", "s3")["linear"] == table1["linear"]
    assert folders("clts_mdlrc/figure6")["modules"] == folders("clts_mdlrc/table3")["cifar10"]
