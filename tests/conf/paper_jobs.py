"""The jobs of the papers' tables at paper scale: the words of `diffusion-lab train` for each model of a row and column.

They are those of `conf/table`. Tables that are not there yet have their presets' words here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.reproduce import load_scale, load_table, table_names
from diffusion_lab.cli.table_jobs import Jobs
from diffusion_lab.tables import Table


class Cell(NamedTuple):
    """A model of a row under a column; without a table's file the column is "" and there is one model."""

    row: str
    column: str = ""
    model: int = 0


@cache
def jobs(name: str) -> dict[Cell, list[str]]:
    """The words of every job of a table, figure or ablation, e.g. adaptive_beta/table1."""
    if name not in _tables():
        return {Cell(row): words.split() for row, words in PRESETS[name].items()}
    return dict(_jobs_of(_tables()[name]))


def names() -> list[str]:
    """All tables and figures of the papers; ablations are this project's own."""
    return sorted({*PRESETS, *(name for name, table in _tables().items() if table.kind != "ablation")})


@cache
def _tables() -> dict[str, Table]:
    folders = [conf_dir()]
    return {name: load_table(name, folders) for name in table_names(folders)}


def _jobs_of(table: Table) -> Iterator[tuple[Cell, list[str]]]:
    jobs = Jobs(table, load_scale("paper", [conf_dir()]))
    for row in (row for row in table.rows if "paper" not in row.absent):
        start = ["init_from=start:raw"] if row.start else []
        for column in table.columns_of(row):
            for number, model in enumerate(row.models):
                yield Cell(row.name, column.name, number), [*jobs.paper_words(column, row, model), *start]


HEURISTICS = {
    "p2": "method=p2",
    "min_snr": "method=min_snr",
    "log_normal": "method=logit_normal",
    "speed": "method=speed",
}
CIFAR10 = {"ddpm": "method=ddpm", **HEURISTICS, "ours": "method=learned_beta"}
SELECTED = {"s1": 1, "s3": 3, "s10": 10, "all": 1000}
POWERS = (-1, -0.5, 0, 0.5, 1, 2)
LINEAR = "experiment=adaptive_beta/table1 schedule=linear"
TABLE2 = "experiment=adaptive_beta/table2"
GUIDED = "experiment=clts_mdlrc/table2"
IMPROVED = "experiment=clts_mdlrc/table3"
FULL = f"{IMPROVED} method=clts_mdlrc"
SLOTS = "experiment=equal_loss_slots"
BIGGAN = "method=biggan network.base_channels=96 batch_size=2048 max_steps=150000"
UVIT = (
    "dataset=imagenet256_latent dataset.source.shape=[4,64,64] dataset.source.images.image_size=512 "
    "dataset.label_dropout=0.1 network.patch_size=4 schedule=sqrt_linear schedule.beta_start=0.00085 "
    "schedule.beta_end=0.012 optimizer=adamw optimizer.betas=[0.99,0.99] optimizer.weight_decay=0.03 "
    "annealing=warmup gradient_clip=null callbacks.ema.warmup=false batch_size=1024 max_steps=500000"
)
PRESETS = {
    "adaptive_beta/figure1": {row: f"{LINEAR} {method}" for row, method in CIFAR10.items()},
    "adaptive_beta/figure7": {
        "ddpm": f"{LINEAR} method=ddpm",
        **{row: f"{LINEAR} method=learned_beta sampler.num_selected={n}" for row, n in SELECTED.items()},
    },
    "adaptive_beta/table2": {
        "ldm": f"{TABLE2} method=ddpm",
        "p2_gamma0": f"{TABLE2} method=p2_gamma0",
        **{row: f"{TABLE2} {method}" for row, method in HEURISTICS.items()},
        "ours": f"{TABLE2}_ours",
    },
    "adaptive_beta/table3": {
        "min_snr": "experiment=adaptive_beta/table3 method=min_snr",
        "min_snr_ours": "experiment=adaptive_beta/table3_ours",
    },
    "adaptive_beta/table4": {
        "variance": "experiment=adaptive_beta/table4 method=variance",
        "ours": "experiment=adaptive_beta/table4 method=learned_beta",
    },
    "clts_mdlrc/table1": {
        "improved_diffusion": f"{IMPROVED} method=iddpm",
        "dcgan": "task=gan network=dcgan dataset=cifar10 network.base_channels=128 batch_size=128 max_steps=100000",
        "guided_diffusion": f"{GUIDED} method=ddpm",
        "guided_diffusion_narrower": f"{GUIDED} method=ddpm network.base_channels=192",
        "biggan_128": f"dataset=imagenet128 {BIGGAN}",
        "uvit_large": f"network=uvit_large {UVIT}",
        "uvit_huge": f"network=uvit_huge {UVIT}",
        "biggan_512": f"dataset=imagenet256 dataset.source.image_size=512 {BIGGAN}",
    },
    "clts_mdlrc/table2": {
        "gd": f"{GUIDED} method=ddpm",
        "min_snr": f"{GUIDED} method=min_snr",
        "ours": f"{GUIDED}_ours",
    },
    "clts_mdlrc/figure6": {
        "baseline": f"{IMPROVED} method=iddpm",
        "md": f"{IMPROVED} method=mdlrc annealing.compensate=false",
        "md_lrc": f"{IMPROVED} method=mdlrc",
        "md_lrc_clts": FULL,
        **{f"mean_{mean}": f"{FULL} sampler.mean={mean}" for mean in (0.1, 0.3, 0.5, 0.7, 0.9)},
        **{f"target_{x}": f"{FULL} sampler.target_steps={x * 500_000:.0f}" for x in (0.02, 0.1, 0.2, 0.4, 1)},
    },
    "equal_loss_slots/table1": {"slots": f"{SLOTS}/figure1_base batch_size=256 max_steps=1980000"},
    "equal_loss_slots/figure1": {
        "base": f"{SLOTS}/figure1_base",
        **{f"power_{power}": f"{SLOTS}/figure1 sampler.power={power}" for power in POWERS},
    },
    "equal_loss_slots/predictions": {
        "eps": f"{SLOTS}/predictions method=ddpm",
        "mixed": f"{SLOTS}/predictions method=mixed_paper",
        "combined": f"{SLOTS}/predictions method=combined",
    },
}
