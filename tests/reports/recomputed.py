"""A table of `report --table` once more, from the values beside it, by scipy."""

import csv
import re

import numpy as np
from scipy import stats


def recomputed(table, values):
    """[(row, what the table says, what the values give)] of every mean and difference of a table with one section."""
    lines = [line.strip("| ").split(" | ") for line in table.read_text().splitlines() if line.startswith("| ")]
    metric = lines[0][2].split()[0]
    base = lines[2][0]
    seen = {}
    with open(values, newline="") as file:
        for line in csv.DictReader(file):
            if line["metric"] == metric:
                seen.setdefault(line["row"], {})[int(line["seed"])] = float(line["value"])
    found = []
    for cells in lines[2:]:
        name, own = cells[0], seen[cells[0]]
        found.append((name, cells[2], said(list(own.values()), cells[2], signed=False)))
        if name != base:
            common = sorted(set(own) & set(seen[base]))
            difference = cells[3].strip("*").partition(" (")[0]
            found.append((name, difference, said([own[s] - seen[base][s] for s in common], difference, signed=True)))
    return found


def said(values, like, signed):
    """Mean and interval with the decimals of another text."""
    places = len(re.search(r"\.(\d+)", like)[1])
    values = np.array(values)
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    ends = (values.mean(), values.mean() - half, values.mean() + half)
    mean, low, high = (f"{x:{'+' if signed else ''}.{places}f}".replace("-", "\N{MINUS SIGN}") for x in ends)
    return f"{mean} [{low}, {high}]"
