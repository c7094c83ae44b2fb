"""experiments/claims.md: its numbers are those of the committed values, and a verdict follows from them."""

import math
import re

import pytest
import yaml

from diffusion_lab.intervals import holm, mean_interval
from experiments import claims

CLAIMS = yaml.safe_load(claims.CLAIMS.read_text(encoding="utf-8"))["claims"]


def test_the_page_is_that_of_today():
    current = claims.PAGE.read_text(encoding="utf-8") == claims.page()
    assert current, "`make test-quick` writes it when it fails, and so does `make pages`; read and commit it"


def test_every_claim_has_three_seeds_and_all_that_the_page_says_of_it():
    values = claims.per_seed()
    assert [claim["name"] for claim in CLAIMS] and {claim["name"] for claim in CLAIMS} == set(values)
    assert all(len(some) >= 3 for some in values.values())
    needed = {"name", "paper", "says", "published", "quantity", "side", "threshold", "command", "overturned_by"}
    assert all(needed <= set(claim) and claim["side"] in ("above", "below") for claim in CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["name"])
def test_an_interval_and_a_verdict_by_hand(claim):
    """From the rows of the page alone, and the values."""
    row = next(line for line in claims.PAGE.read_text(encoding="utf-8").splitlines() if claim["says"] in line)
    *_, mean, ends_said, seeds, p, verdict = [cell.strip() for cell in row.strip("|").split("|")]
    values, ratio = claims.per_seed()[claim["name"]], claim.get("ratio")
    interval = mean_interval([math.log(value) for value in values] if ratio else values)
    ends = [math.exp(x) if ratio else x for x in (interval.mean, interval.low, interval.high)]
    said = [
        float(text.replace("−", "-").replace(",", ""))
        for text in re.findall(r"[−\d.,e+]*\d", mean)[:1] + re.findall(r"[−\d.,e+]*\d", ends_said)
    ]
    assert said == pytest.approx(ends, rel=6e-3, abs=1e-9) and seeds == str(len(values))
    side = (interval.mean > (math.log(claim["threshold"]) if ratio else claim["threshold"])) == (
        claim["side"] == "above"
    )
    if float(p.removeprefix("< ")) < 0.05:
        assert verdict == ("**holds here**" if side else "**does not**")
    else:
        assert verdict == "not decided"


def test_the_three_verdicts():
    claim = {"says": "", "published": "", "quantity": "", "side": "above", "threshold": 1.0, "ratio": True}
    near = [1.9, 2.0, 2.1]
    assert "**holds here**" in claims.row_of(claim, near, 0.01)
    assert "**does not**" in claims.row_of(claim | {"side": "below"}, near, 0.01)
    assert "not decided" in claims.row_of(claim, near, 0.06)
    assert "| 2 | [1.76, 2.26] | 3 |" in claims.row_of(claim, near, 0.01)  # exp(log 2 +- 4.303 sd / sqrt 3)


def test_the_correction_is_for_all_rows():
    values = claims.per_seed()
    single = [claims.test_of(claim, values[claim["name"]]).p_value for claim in CLAIMS]
    corrected = holm([1.0 if p is None else p for p in single])
    text = claims.PAGE.read_text(encoding="utf-8")
    for claim, p in zip(CLAIMS, corrected, strict=True):
        row = next(line for line in text.splitlines() if claim["says"] in line)
        assert (f"| {p:.2g} |" if p >= 1e-4 else "| < 0.0001 |") in row
