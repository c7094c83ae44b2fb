"""Metrics that are losses: the bound decides on one schedule, the excess loss at common levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from diffusion_lab.reports.comparison.labels import group_runs
from diffusion_lab.reports.comparison.rows import Row, tabulate
from diffusion_lab.reports.comparison.sections import sections_of
from diffusion_lab.reports.pair.pair import Pair, measured_differently
from diffusion_lab.runs.find import read_runs
from tests.reports.curves import FD, STEPS, power_law, write_curves

BOUND = {"timesteps": 1000, "seed": "the run's"}
LEVELS = {"levels": {"count": 24, "log_snr": [-6.0, 6.0]}, "seed": "the run's"}
COSINE = {"_target_": "diffusion_lab.diffusion.cosine", "num_timesteps": 1000}


def rows_of(folder: Path, protocols: list[dict[str, Any]], **other: Any) -> tuple[list[Row], str, int]:
    """The rows of uniform and a logit_normal of half the value, the words of `compare`, and the number of sections."""
    made = zip(("uniform", "logit_normal"), (1, 0.5), protocols, ({}, other), strict=True)
    for method, factor, protocol, changed in made:
        for seed in range(3):
            metric = factor * power_law(STEPS) * (1 + seed / 50) ** factor
            write_curves(folder / f"{method}-{seed}", method, seed, metric, protocol=protocol, **changed)
    runs = read_runs(folder).runs
    one, two = sorted(group_runs(runs), key=lambda group: group.runs[0].info["method"], reverse=True)
    rows = tabulate([one, two], FD).rows
    return rows, measured_differently(Pair(one, two, FD, [FD]), FD), len(sections_of(runs))


def test_the_bound_decides_on_one_schedule(tmp_path: Path) -> None:
    rows, words, sections = rows_of(tmp_path / "one", [BOUND, BOUND])
    assert rows[1].bold and rows[1].effect and np.isclose(rows[1].effect.size, 0.5, rtol=0.02)
    assert (words, sections) == ("", 1)
    rows, words, sections = rows_of(tmp_path / "two", [BOUND, BOUND], schedule=COSINE)
    assert rows[1].effect is None and rows[1].unpaired == "n/a (measured differently)"
    assert (words, sections) == ("schedule linear and cosine", 2)


def test_the_excess_loss_decides_between_schedules_at_common_levels(tmp_path: Path) -> None:
    rows, words, sections = rows_of(tmp_path / "common", [LEVELS, LEVELS], schedule=COSINE)
    assert rows[1].bold and (words, sections) == ("", 1)
    rows, words, sections = rows_of(tmp_path / "other", [LEVELS, LEVELS | {"levels": {"count": 8}}])
    assert rows[1].effect is None and words.startswith("levels") and sections == 2


def test_features_of_one_name_from_two_networks_are_not_compared(tmp_path: Path) -> None:
    """Those of own images differ between conditional and unconditional runs."""
    own = [{"extractor": {"name": "own", "weights_sha256": sha}, "seed": "the run's"} for sha in "ab"]
    rows, words, sections = rows_of(tmp_path / "two", own)
    assert rows[1].effect is None and rows[1].unpaired == "n/a (measured differently)"
    assert words == "extractor.weights_sha256 a and b" and sections == 2
    assert rows_of(tmp_path / "one", [own[0], own[0]])[0][1].bold
