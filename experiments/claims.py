"""Writes `claims.md`: what the papers claim of losses, gradients and landscapes, beside what was measured here.

    python -m experiments.claims            write the page (`make pages`)
    python -m experiments.claims --check    exit code 1 if it is stale

`claims.yaml` states each claim with a quantity and the side of a threshold on which it holds, which were fixed before
the runs. `claims.values.csv` has the quantity's values, one per seed, from `experiments/claims_measured.py`. The page
follows from the two, and from the validation losses in `claims.curves.csv`:

    holds here      the mean lies on the claim's side of the threshold, and p < 0.05
    does not        it lies on the other side, and p < 0.05
    not decided     otherwise

with p of Student's t-test of the values (of their logarithms, for a ratio) against the threshold, corrected by Holm's
method for the number of claims.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from diffusion_lab.intervals import Interval, holm, mean_interval

FOLDER = Path(__file__).resolve().parent
PAGE, CLAIMS = FOLDER / "claims.md", FOLDER / "claims.yaml"
VALUES, CURVES = FOLDER / "claims.values.csv", FOLDER / "claims.curves.csv"
SIGNIFICANT, LEAST_P = 0.05, 0.0001


def page() -> str:
    """The text of the page."""
    content = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))
    claims = content["claims"]
    values = per_seed()
    p_values = [test_of(claim, values[claim["name"]]).p_value for claim in claims]
    corrected = holm([1.0 if p is None else p for p in p_values])
    rows = {claim["name"]: row_of(claim, values[claim["name"]], p) for claim, p in zip(claims, corrected, strict=True)}
    words = [rows[claim["name"]].rsplit("|", 2)[1].strip(" *") for claim in claims]
    counts = ", ".join(f"{words.count(word)} {said}" for word, said in SAID.items() if word in words)
    title, _, head = content["head"].strip().partition("\n\n")
    parts = [title, f"**Of {len(claims)} claims, {counts}. The models are small and the runs short.**", head]
    for paper in content["papers"]:
        own = [claim for claim in claims if claim["paper"] == paper["name"]]
        parts.append(f"## {paper['title']}\n\n" + "\n".join([HEAD, RULE, *(rows[claim["name"]] for claim in own)]))
        parts.append("\n".join(f"- `{c['command']}` ({c['name']}). Overturned by: {c['overturned_by']}" for c in own))
    parts += [content["foot"].strip(), flatness()]
    return "\n\n".join(parts) + "\n"


SAID = {"holds here": "hold here", "does not": "do not hold here", "not decided": "remain undecided"}
HEAD = "| the paper claims | published | quantity, and where it holds | mean | 95 % interval | seeds | p | verdict |"
RULE = "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"


def per_seed() -> dict[str, list[float]]:
    """Name of a claim -> its values in the order of the seeds."""
    values: dict[str, list[float]] = {}
    with open(VALUES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            values.setdefault(line["claim"], []).append(float(line["value"]))
    return values


def test_of(claim: dict[str, Any], values: list[float]) -> Interval:
    """The interval of the values' distance from the threshold, in logarithms for a ratio."""
    threshold = float(claim["threshold"])
    if claim.get("ratio"):
        return mean_interval([math.log(value / threshold) for value in values])
    return mean_interval([value - threshold for value in values])


def row_of(claim: dict[str, Any], values: list[float], p: float) -> str:
    """The row of one claim."""
    test = test_of(claim, values)
    above = test.mean > 0
    verdict = "not decided"
    if p < SIGNIFICANT:
        verdict = "**holds here**" if above == (claim["side"] == "above") else "**does not**"
    sign = ">" if claim["side"] == "above" else "<"
    quantity = f"{claim['quantity']}; {sign} {claim['threshold']}"
    shown_p = f"{p:.2g}" if p >= LEAST_P else f"< {LEAST_P:g}"
    return f"| {claim['says']} | {claim['published']} | {quantity} | {shown(claim, values)} | {shown_p} | {verdict} |"


def shown(claim: dict[str, Any], values: list[float]) -> str:
    """The cells of mean, interval and number of seeds; of a ratio the geometric mean and its interval."""
    if claim.get("ratio"):
        interval = mean_interval([math.log(value) for value in values])
        numbers = [None if x is None else math.exp(x) for x in (interval.mean, interval.low, interval.high)]
    else:
        interval = mean_interval(values)
        numbers = [interval.mean, interval.low, interval.high]
    mean, low, high = ("" if x is None else number(x) for x in numbers)
    unit = f" {claim['unit']}" if claim.get("unit") else ""
    return f"{mean}{unit} | [{low}, {high}] | {interval.n}"


def number(value: float) -> str:
    """Three digits, e.g. 0.0123, 1,230, 4.5e+06."""
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "\N{MINUS SIGN}") if text.startswith("-") else text


def flatness() -> str:
    """How far the validation loss still falls, of each kind of run, in the last quarter of its steps."""
    kinds: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    with open(CURVES, newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            kind = re.sub(r"-s\d+-\w+$", "", line["run"]), line["network"]
            kinds.setdefault(kind, {}).setdefault(line["run"], {})[int(line["step"])] = float(line["val_loss"])
    rows = []
    for (name, network), runs in kinds.items():
        last = max(max(curve) for curve in runs.values())
        cells = [
            number(sum(curve[step] for curve in runs.values()) / len(runs))
            for step in (last // 4, last // 2, 3 * last // 4, last)
        ]
        falls = [100 * (1 - curve[last] / curve[3 * last // 4]) for curve in runs.values()]
        rows.append(f"| {name} | {network} | {len(runs)} | {' | '.join(cells)} | {number(sum(falls) / len(falls))} % |")
    head = "| runs | network | n | at 1/4 of the steps | 1/2 | 3/4 | end | fall in the last quarter |"
    return "\n".join([head, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |", *rows])


def main(arguments: list[str]) -> int:
    """Write the page, or say that it is stale."""
    text = page()
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print(f"{'stale' if '--check' in arguments else 'written'}: experiments/{PAGE.name}")
    if "--check" in arguments:
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
