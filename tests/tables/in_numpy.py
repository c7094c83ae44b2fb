"""The numbers of a table.csv from the values in its per_seed.csv, with NumPy and SciPy alone."""

from __future__ import annotations

import csv
import io
from functools import lru_cache

import numpy as np
from scipy import stats

from diffusion_lab.tables import Table

Numbers = dict[str, dict[str, float]]  # row -> seed -> value


def check_intervals(table: Table, table_csv: str, per_seed_csv: str) -> int:
    """Every mean, ratio and interval of the table; returns how many are compared with a baseline."""
    cells: dict[tuple[str, str], Numbers] = {}
    lines = list(csv.DictReader(io.StringIO(table_csv)))
    lost = {(line["row"], line["column"]): line["diverged"].split() for line in lines}
    for line in csv.DictReader(io.StringIO(per_seed_csv)):
        own = cells.setdefault((line["column"], line["cell"]), {}).setdefault(line["row"], {})
        if line["seed"] not in lost[line["row"], line["column"]]:
            own[line["seed"]] = float(line["value"])
    scale = "ratio" if "ratio" in lines[0] else "difference"
    compared = 0
    for column in table.columns:
        own = [line for line in lines if line["column"] == column.name]
        for cell in dict.fromkeys(line["cell"] for line in own):
            found = [line for line in own if line["cell"] == cell]
            numbers = (
                cells.get((column.name, cell), {}) if cell != "over training" else _mean_of(cells, column.name, scale)
            )
            for line in found:
                _check_mean(line, list(numbers.get(line["row"], {}).values()))
            compared += _check_column(table, table.baseline_of(column), found, numbers, scale)
    return compared


def _mean_of(cells: dict[tuple[str, str], Numbers], column: str, scale: str) -> Numbers:
    """Row -> seed -> mean over the cells, of those that have all of them."""
    every = [numbers for (name, _), numbers in cells.items() if name == column]
    onto, back = (np.log, np.exp) if scale == "ratio" else (np.asarray, np.asarray)
    found: Numbers = {}
    for row in set.intersection(*(set(one) for one in every)):
        seeds = sorted(set.intersection(*(set(one[row]) for one in every)))
        found[row] = {seed: float(back(np.mean([onto(one[row][seed]) for one in every]))) for seed in seeds}
    return found


def _check_mean(line: dict[str, str], values: list[float]) -> None:
    x, said = np.array(values), [line[key] for key in ("mean", "low", "high")]
    assert int(line["n"]) == len(x)
    if len(x) < 2:
        assert [float(one) for one in said if one] == x.tolist()
        return
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    np.testing.assert_allclose([float(one) for one in said], x.mean() + half * np.array([0, -1, 1]), rtol=0, atol=1e-9)


def _check_column(table: Table, baseline: str, lines: list[dict[str, str]], numbers: Numbers, scale: str) -> int:
    onto, back = (np.log, np.exp) if scale == "ratio" else (np.asarray, np.asarray)
    rows = [line for line in lines if line[scale]]
    with_number = [line for line in rows if table.row(line["row"]).against.get(line["column"]) is not None]
    share = sum(len(numbers[line["row"]]) > 2 for line in with_number) or 1
    for line in with_number:
        x = np.array(list(numbers[line["row"]].values())) - table.row(line["row"]).against[line["column"]]
        half = stats.t.ppf(1 - 0.025 / share, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else 0
        _same(line, scale, [x.mean(), x.mean() - half, x.mean() + half], 1e-9)
    rest = [line for line in rows if line not in with_number]
    pairs = {line["row"]: _differences(numbers[line["row"]], numbers[baseline], onto) for line in rest}
    tested = [name for name, x in pairs.items() if len(x) > 2 and x.any()]
    for line in rest:
        x = pairs[line["row"]]
        assert int(line["pairs"]) == len(x)
        if line["row"] not in tested:
            half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else 0
            _same(line, scale, back(np.array([x.mean(), x.mean() - half, x.mean() + half])), 1e-9)
    if tested:
        y = np.array([[onto(numbers[name][s]) for s in numbers[baseline]] for name in [baseline, *tested]])
        m, half = intervals(y)
        for name, mean, h in zip(tested, m, half, strict=True):
            (line,) = (line for line in rest if line["row"] == name)
            _same(line, scale, back(np.array([mean, mean - h, mean + h])), 0.02 * float(half.max()))
    return len(rows)


def intervals(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means and half widths of the simultaneous intervals of a table (rows, seeds); of two rows Student's."""
    if len(y) == 2:
        d, n = y[1] - y[0], y.shape[1]
        return np.array([d.mean()]), np.array([stats.t.ppf(0.975, n - 1) * d.std(ddof=1) / np.sqrt(n)])
    mean, error = effects(y)
    half = critical(*y.shape) * error
    if (out := stand_out(y)).any():
        k, n = len(out), y.shape[1]
        out |= k - out.sum() == 1
        d = y[1:] - y[:1]
        half = stats.t.ppf(1 - 0.025 / k, n - 1) * d.std(1, ddof=1) / np.sqrt(n)
        if not out.all():
            half[~out] = intervals(y[[True, *~out]])[1]
    return mean, half


def stand_out(y: np.ndarray) -> np.ndarray:
    """Rows whose differences vary outside the central 99.9 % of what rows of tables without any difference do."""
    if len(y) < 4:
        return np.zeros(len(y) - 1, dtype=bool)
    low, high = usual(*y.shape)
    return (relative_variance(y) < low) | (relative_variance(y) > high)


def relative_variance(y: np.ndarray) -> np.ndarray:
    variance = (y[..., 1:, :] - y[..., :1, :]).var(-1, ddof=1)
    return variance / np.median(variance, -1, keepdims=True)


@lru_cache
def usual(rows: int, seeds: int) -> np.ndarray:
    random = np.random.default_rng(98)
    tables = random.normal(size=(20_000, rows, seeds)) * np.sqrt(4 / random.chisquare(4, (20_000, rows, 1)))
    return np.quantile(relative_variance(tables), [0.0005, 0.9995])


def effects(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Differences to the first row and their moderated standard errors: y (.., rows, seeds)."""
    k, n = y.shape[-2:]
    e = y - y.mean(-1, keepdims=True)
    w = np.full(y.shape[:-1], 1 / k)
    if k > 3:
        around = ((e - np.median(e, -2, keepdims=True)) ** 2).sum(-1)
        w = 1 / np.maximum(1, around / (8 * np.median(around, -1, keepdims=True)))
        w = w / w.sum(-1, keepdims=True)
    s2 = (e - np.einsum("...k,...kn->...n", w, e)[..., None, :]).var(-1, ddof=1)
    a = (w**2 / (1 - 2 * w) * s2).sum(-1, keepdims=True) / (1 + (w**2 / (1 - 2 * w)).sum(-1, keepdims=True))
    v = np.maximum((s2 - a) / (1 - 2 * w), 0)
    least = np.minimum(v, 8 * np.median(s2, -1, keepdims=True)) if k > 3 else v
    pooled = least.mean(-1, keepdims=True) + (v - least) / k
    v = (4 * pooled + (n - 1) * v) / (4 + n - 1)
    return (y[..., 1:, :] - y[..., :1, :]).mean(-1), np.sqrt((v[..., 1:] + v[..., :1]) / n)


@lru_cache
def critical(rows: int, seeds: int) -> float:
    """The 96.25 % quantile of the largest |T| of tables without any difference, drawn here with another seed."""
    random = np.random.default_rng(99)
    tables = random.normal(size=(20_000, rows, seeds)) * np.sqrt(4 / random.chisquare(4, (20_000, rows, 1)))
    mean, error = effects(tables)
    return float(np.quantile(np.abs(mean / error).max(1), 0.9625))


def _differences(own: dict[str, float], base: dict[str, float], onto) -> np.ndarray:
    return np.array([onto(own[seed]) - onto(base[seed]) for seed in own if seed in base])


def _same(line: dict[str, str], scale: str, numbers, tolerance: float) -> None:
    """Size and ends; an end that the step-down has cut at no difference lies between there and the interval's own."""
    said = [float(line[key]) for key in (scale, f"{scale}_low", f"{scale}_high") if line[key]]
    none = 1.0 if scale == "ratio" else 0.0
    for one, number in list(zip(said, numbers, strict=False)):
        if one != none:
            np.testing.assert_allclose(one, number, rtol=tolerance, atol=tolerance)
        else:
            assert np.sign(said[0] - none) != np.sign(number - none) or said[0] == none
