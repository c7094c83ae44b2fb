"""The sentence at the top of a report, from runs whose values are known."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from diffusion_lab.intervals import mean_interval, paired_difference
from diffusion_lab.reports.comparison.rows import BASELINE, Row
from diffusion_lab.reports.comparison.sentences import answer
from diffusion_lab.reports.comparison.verdicts import judge

BASE = [3.0, 3.4, 2.8, 3.2, 3.1]
NOISE = np.array([0.01, -0.02, 0.015, 0.0, -0.01])


def said(methods: dict[str, list[float]], size: float | None = 0.25) -> str:
    """The answer for methods with these values, of which the first is the baseline and fewer are better."""
    (base, baseline), *_ = methods.items()
    pairs = [list(zip(own, baseline, strict=True)) if name != base else [] for name, own in methods.items()]
    verdicts = judge(pairs, rising=False, size=size)
    rows = [
        Row(
            group=cast(Any, SimpleNamespace(label=name)),
            metric=mean_interval(own) if own else None,
            difference=paired_difference(own, baseline) if own and name != base else None,
            **dict.fromkeys(("cost", "val_loss", "images_per_second", "seconds")),  # type: ignore[arg-type]
            unpaired=BASELINE if name == base else "",
            verdict=verdict,
        )
        for (name, own), verdict in zip(methods.items(), verdicts, strict=True)
    ]
    return answer(rows, size)


def off(by: float) -> list[float]:
    return list(np.array(BASE) + by + NOISE)


def test_a_clear_winner_is_named_with_its_difference() -> None:
    assert said({"uniform": BASE, "speed": off(-1.0)}) == "At n = 5, speed is better than uniform, by 1."


def test_several_are_named_from_the_largest_on_and_the_worse_ones_too() -> None:
    text = said({"uniform": BASE, "speed": off(-0.5), "logit_normal": off(-1.0), "power": off(0.3)})
    assert text == (
        "At n = 5, logit_normal and speed are better than uniform, by 0.5 to 1 and power is worse than uniform, by 0.3."
    )


def test_no_difference_says_what_the_interval_excludes_and_how_many_seeds_detect_one() -> None:
    values = [3.3, 3.2, 2.9, 3.0, 3.3]
    text = said({"uniform": BASE, "speed": values})
    difference = np.array(values) - BASE
    half = 2.776 * difference.std(ddof=1) / np.sqrt(5)
    end = max(abs(difference.mean() - half), abs(difference.mean() + half))
    found = re.fullmatch(
        r"At n = 5, the difference of speed to uniform remains undecided; "
        r"its interval excludes differences above ([\d.]+)\. "
        r"To detect a difference of 0\.25, run a new comparison with (\d+) seeds\.",
        text,
    )
    assert found and float(found[1]) == pytest.approx(end, rel=0.05) and 5 < int(found[2]) < 40


def test_a_difference_that_the_interval_excludes_already_is_not_proposed() -> None:
    text = said({"uniform": BASE, "speed": list(np.array(BASE) + [0.02, -0.02, 0.01, -0.01, 0.005])}, size=4.0)
    assert "its interval excludes differences above" in text and "new comparison" not in text


def test_the_correction_for_many_rows_takes_a_verdict_back() -> None:
    weak = list(np.array(BASE) - np.array([0.3, 0.02, 0.25, 0.15, 0.1]))  # p = 0.03 alone
    assert "speed is better" in said({"uniform": BASE, "speed": weak})
    rows = {f"power{i}": list(np.array(BASE) + np.roll([0.1, -0.1, 0.05, 0.02, -0.08], i)) for i in range(5)}
    text = said({"uniform": BASE, "speed": weak, **rows})
    assert "better" not in text and "remain undecided" in text and "and 2 more" in text


@pytest.mark.parametrize(("n", "words"), [(1, "With one seed"), (2, "With 2 seeds")])
def test_few_seeds_claim_nothing(n: int, words: str) -> None:
    text = said({"uniform": BASE[:n], "speed": off(-1.0)[:n]})
    assert text == f"{words} there is no verdict (n = {n}); it takes at least 3 seeds."


def test_one_method_and_failures_alone() -> None:
    assert said({"uniform": BASE}).startswith("Only uniform has a value; train a second method")
    assert said({"uniform": [], "speed": []}).startswith("No run has finished")


def test_a_repeated_baseline_is_called_identical() -> None:
    assert said({"uniform": BASE, "speed": BASE}) == "speed is identical to uniform."
