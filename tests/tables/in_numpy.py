"""The intervals of a table.csv from the values in its per_seed.csv, with NumPy and SciPy alone."""

from __future__ import annotations

import csv
import io

import numpy as np
from scipy import stats

from diffusion_lab.tables import Table


def check_intervals(table: Table, table_csv: str, per_seed_csv: str) -> int:
    """Every mean, difference and interval of the table to 1e-9; returns how many differences there are."""
    numbers: dict[tuple[str, ...], dict[str, float]] = {}
    for line in csv.DictReader(io.StringIO(per_seed_csv)):
        numbers.setdefault((line["row"], line["column"], line["cell"]), {})[line["seed"]] = float(line["value"])
    baselines = {column.name: table.baseline_of(column) for column in table.columns}
    compared = 0
    for line in csv.DictReader(io.StringIO(table_csv)):
        own = numbers.get((line["row"], line["column"], line["cell"]), {})
        assert int(line["n"]) == len(own)
        _same([line[key] for key in ("mean", "low", "high")], list(own.values()))
        if line["difference"]:
            instead = table.row(line["row"]).against.get(line["column"])
            base = numbers.get((baselines[line["column"]], line["column"], line["cell"]), {})
            base = dict.fromkeys(own, instead) if instead is not None else base
            differences = [own[seed] - base[seed] for seed in own.keys() & base.keys()]
            _same([line[key] for key in ("difference", "difference_low", "difference_high")], differences)
            compared += 1
    return compared


def _same(said: list[str], values: list[float]) -> None:
    x = np.array(values)
    if len(x) < 2:
        assert said == [repr(float(x[0])) if x.size else "", "", ""]
        return
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    np.testing.assert_allclose([float(one) for one in said], x.mean() + half * np.array([0, -1, 1]), rtol=0, atol=1e-9)
