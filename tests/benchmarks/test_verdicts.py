"""The page of the verdicts' error rates holds what its command computes, and within the promised bounds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import verdicts
from diffusion_lab.verdicts import judge

DECIDED = ("now", "now, one seed of another row collapsed", "before")


def rows(heading: str) -> dict[tuple[str, str], list[float]]:
    """(name, n) -> the numbers of each K, of a section of the page."""
    section = verdicts.PAGE.read_text(encoding="utf-8").partition(f"## {heading}")[2].partition("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and "0." in line
    ]
    return {
        (cell[0], cell[1]): [float(one or "nan") for one in cell[2:]]
        for cell in cells
        if re.fullmatch(r"\d+", cell[1]) and len(cell) == 2 + len(verdicts.ROWS)
    }


def test_numbers_of_the_page_are_computed_again() -> None:
    at = verdicts.ROWS.index(7)
    assert rows("False verdicts")["archive", "3"][at] == round(verdicts.false_verdicts(verdicts.of_archive, 7, 3), 3)
    decided = rows("Decided")
    assert list(verdicts.decided_pairs(7, 3)) == pytest.approx([decided[name, "3"][at] for name in DECIDED], abs=5e-4)


def test_the_rates_are_within_their_bounds() -> None:
    false = rows("False verdicts")
    assert len(false) == 9 and max(map(max, false.values())) <= 0.055
    covered = rows("Covered")
    for name in ("no difference", "differences of the archive"):
        assert all(0.94 <= one <= 0.96 for n in ("3", "5", "10") for one in covered[name, n])
    assert all(0.94 <= one <= 0.96 for n in ("3", "5") for one in covered["without learned_beta", n])
    at = verdicts.ROWS.index(7)
    decided = rows("Decided")
    for name, least in zip(DECIDED, ((0.75, 0.93), (0.6, 0.88)), strict=False):
        assert decided[name, "3"][at] >= least[0] and decided[name, "5"][at] >= least[1]


def test_many_tables_are_judged_as_one_is() -> None:
    y = verdicts.of_archive(np.random.default_rng(0), 30, 5, 4)
    y[:, -1] += 0.2
    found = verdicts.judged(y)
    for i in range(30):
        one = judge([dict(enumerate(np.exp(row).tolist())) for row in y[i]], "ratio", rising=False)
        assert [row is not None and row.decided for row in one[1:]] == found.decided[i].tolist()
        assert np.allclose([row.low for row in one[1:] if row], np.exp(found.low[i]))
        assert np.allclose([row.high for row in one[1:] if row], np.exp(found.high[i]))
