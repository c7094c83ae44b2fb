"""How often a race is right and what it costs: `python -m benchmarks.races` writes races.md in minutes.

A race of K rows and at most N seeds, by `diffusion_lab/racing.py`, is run on values whose truth is known:

    equal          K cells of the crossed study (as `archive` in `verdicts.py`) without their means: no row is worse
    digits         the same with the means of the cells
    all studies    K rows of one table of `experiments/archive` with their means, N = 5
    Fashion-MNIST  likewise of its tables, which have 3 seeds, N = 3

The means over all seeds are the truth; seeds of whole blocks have their sign flipped at random. The bounds, with an
error of 5 %, are of normal numbers and fitted to none of these values. Two numbers are chosen. Of the error of setting
a row aside (n/N)^(1/2) is spent after n of N seeds: of the powers 0, 1/2, 1 and 2 the cheapest on the crossed study.
And a race ends where further seeds would improve the choice by less than a twentieth of the margin, the least gain. The
last table but one chooses both again, for each study by the other ones: the cheapest of these powers and of the least
gains 0, 1/100, 1/50, 1/20 and 1/10 with which, on average over the other studies, the best is set aside in at most 5 %
of races and the regret is at most 0.0005 above that of five seeds for all.

Worse, not so: share of races in which a row is called worse than one that is not better. Interval missed: share of
races in which the interval of some row's ratio to the chosen row, when the race has ended, does not hold the true
ratio. Best set aside: share of races in which the best row is. Cost: trainings over K x 5. Regret: mean ln ratio of the
chosen row, the best mean of those left, to the best row. Told: share of the rows whose true ratio to the best is 1.1 to
1.4 that are called worse.

Beside it, at the same cost: successive halving (the better half after 2 seeds, and again with twice as many until one
is left; its own cost), and the best mean of as many seeds for all rows as the race's trainings allow. Beside these, the
best mean of 5 seeds for all. Missed: share of races in which another row than the best is chosen.
"""

from __future__ import annotations

import datetime
import itertools
import math
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from benchmarks.verdicts import NOISE, NOISE_10, OVER, _chosen, residuals, studies
from diffusion_lab import racing
from diffusion_lab.racing import FIRST, Gap, gaps, is_over, standings
from diffusion_lab.verdicts import MARGIN

PAGE = Path(__file__).resolve().parent / "races.md"
RACES, ROWS, FIXED = 1_000, (2, 4, 7, 10, 13), 5
LEAST, ASIDE, REGRET = 4, 0.05, 0.0005  # rows, and what is allowed where power and least gain are chosen
NOISES = (0.03, 0.05, 0.1, 0.2, 0.4)
EARLY, WORTHS = (0.0, 0.5, 1.0, 2.0), (0.0, 0.01, 0.02, 0.05, 0.1)


class Races(NamedTuple):
    """Values of many races (races, K, N), and the rows' true means (races, K)."""

    y: np.ndarray
    truth: np.ndarray


class Ended(NamedTuple):
    """One race: each row's word, the chosen row, the trainings, and each row's difference to the chosen one."""

    words: list[str]
    chosen: int
    trainings: int
    apart: list[Gap]


def of_digits(random: np.random.Generator, rows: int, most: int, equal: bool) -> Races:
    noise = NOISE if most <= FIXED else NOISE_10
    cells, columns = (_chosen(random, RACES, of, n) for of, n in zip(noise.shape, (rows, most), strict=True))
    truth = np.zeros((RACES, rows)) if equal else OVER[cells].mean(-1)
    y = noise[cells[:, :, None], columns[:, None, :]] * random.choice([-1, 1], (RACES, 1, most))
    return Races(y + truth[:, :, None], truth)


def of_studies(
    random: np.random.Generator, rows: int, seeds: int = FIXED, chosen: Callable[[str, str], bool] = lambda *_: True
) -> Races:
    """Of the tables with so many rows and seeds, each in proportion to its rows; `chosen`: by study and metric."""
    tables = [y for (study, _, metric), y in studies(least=seeds).items() if len(y) >= rows and chosen(study, metric)]
    shares = np.array([len(y) for y in tables])
    made = []
    for k in random.choice(len(tables), RACES, p=shares / shares.sum()):
        cells = random.permutation(len(tables[k]))[:rows]
        noise, truth = residuals(tables[k])[cells, :seeds], tables[k][cells].mean(1)
        made.append((noise * random.choice([-1, 1], seeds) + truth[:, None], truth))
    return Races(*map(np.stack, zip(*made, strict=True)))


def raced(y: np.ndarray, margin: float | None) -> Ended:
    """A race to its end."""
    rows, most = y.shape
    there = np.zeros((rows, most), dtype=bool)
    there[:, :FIRST] = True
    while True:
        found = standings(y, there, most, margin)
        left = [i for i, one in enumerate(found) if one.word == "in"]
        n = int(there.sum(1).max())
        if is_over(y, there, most, found, margin):
            chosen = min(left, key=lambda i: y[i, :n].mean())
            return Ended([one.word for one in found], chosen, int(there.sum()), gaps(y, there, most, chosen))
        there[left, n] = True


def halved(y: np.ndarray) -> Ended:
    """Successive halving over seeds."""
    rows, most = y.shape
    left, n, trainings = list(range(rows)), FIRST, rows * FIRST
    while len(left) > 1:
        left = sorted(left, key=lambda i: y[i, :n].mean())[: math.ceil(len(left) / 2)]
        more = min(most, 2 * n)
        trainings += len(left) * (more - n) if len(left) > 1 else 0
        n = more
    return Ended(["in" if i in left else "worse" for i in range(rows)], left[0], trainings, [])


def cut(y: np.ndarray, trainings: int) -> int:
    """The best mean of all rows after as many trainings: whole blocks, and one more seed for the first rows."""
    rows, most = y.shape
    n = [min(most, (trainings + rows - 1 - i) // rows) for i in range(rows)]
    return min(range(rows), key=lambda i: y[i, : n[i]].mean())


def line(name: str, races: Races, most: int, margin: float | None) -> str:
    """A line of the table of races."""
    ended = [raced(y, margin) for y in races.y]
    rows = races.y.shape[1]
    best = races.truth.argmin(1)
    gap = races.truth - races.truth.min(1, keepdims=True)
    worse = np.array([[word == "worse" for word in one.words] for one in ended])
    equal = not gap.any()
    false = worse.any(1) if equal else worse[np.arange(len(best)), best]
    aside = np.mean([one.words[b] == "set aside" for one, b in zip(ended, best, strict=True)])
    asked = (gap > math.log(1.1)) & (gap < math.log(1.4))
    missed = [
        any(abs(one.size - own[i] + own[race.chosen]) > one.half for i, one in enumerate(race.apart))
        for own, race in zip(races.truth, ended, strict=True)
    ]
    shown = [
        f"{false.mean():.3f}",
        f"{np.mean(missed):.3f}",
        "" if equal else f"{aside:.3f}",
        f"{_cost(ended, rows):.2f}",
    ]
    shown += ["", ""] if equal else [f"{_regret(gap, [one.chosen for one in ended]):.4f}", f"{worse[asked].mean():.2f}"]
    return f"| {name} | {rows} | {most} | {'' if margin is None else margin} | {' | '.join(shown)} |"


def beside(name: str, races: Races, most: int) -> str:
    """A line of the table of regrets."""
    rows = races.y.shape[1]
    gap = races.truth - races.truth.min(1, keepdims=True)
    race, half = ([one(y) for y in races.y] for one in (lambda y: raced(y, MARGIN), halved))
    same = [cut(y, one.trainings) for y, one in zip(races.y, race, strict=True)]
    fixed = [int(y[:, :FIXED].mean(1).argmin()) for y in races.y]
    cells = [f"{_cost(race, rows):.2f}"]
    for chosen in ([one.chosen for one in race], same, fixed):
        cells += [f"{_regret(gap, chosen):.4f}", f"{_missed(gap, chosen):.2f}"]
    cells += [f"{_cost(half, rows):.2f}"]
    cells += [
        f"{of(gap, [one.chosen for one in half]):{digits}}" for of, digits in ((_regret, ".4f"), (_missed, ".2f"))
    ]
    return f"| {name} | {rows} | {most} | {' | '.join(cells)} |"


class Outcome(NamedTuple):
    """Of races: cost, share in which the best is set aside, regret, and that of five seeds for all."""

    cost: float
    aside: float
    regret: float
    five: float


def left_out() -> Iterator[str]:
    """The table of studies that are left out: what the others choose, and its outcome on this one."""
    own = {}
    for study in sorted(
        {name.partition("/")[0] for name, *_ in (key for key, y in studies().items() if len(y) >= LEAST)}
    ):
        races = of_studies(np.random.default_rng(0), LEAST, chosen=lambda name, _, s=study: name.startswith(f"{s}/"))
        own[study] = {way: outcome(races, *way) for way in itertools.product(EARLY, WORTHS)}
    found = []
    for study, ways in own.items():
        others = {way: Outcome(*np.mean([own[one][way] for one in own if one != study], axis=0)) for way in ways}
        allowed = [way for way, one in others.items() if one.aside <= ASIDE and one.regret <= one.five + REGRET]
        best = min(allowed, key=lambda way: others[way].cost)
        found.append(ways[best])
        yield _line(study, f"{best[0]:g}", f"{best[1]:g}", found[-1])
    yield _line("mean", "", "", Outcome(*np.mean(found, axis=0)))


def _line(study: str, early: str, worth: str, one: Outcome) -> str:
    return f"| {study} | {early} | {worth} | {one.cost:.2f} | {one.aside:.3f} | {one.regret:.4f} | {one.five:.4f} |"


def outcome(races: Races, early: float, worth: float) -> Outcome:
    """With another power and least gain."""
    with mock.patch.multiple(racing, _EARLY=early, WORTH=worth):
        ended = [raced(y, MARGIN) for y in races.y]
    gap, best = races.truth - races.truth.min(1, keepdims=True), races.truth.argmin(1)
    aside = np.mean([one.words[b] == "set aside" for one, b in zip(ended, best, strict=True)])
    five = races.y.mean(2).argmin(1).tolist()
    return Outcome(_cost(ended, LEAST), float(aside), _regret(gap, [one.chosen for one in ended]), _regret(gap, five))


def _cost(ended: list[Ended], rows: int) -> float:
    return float(np.mean([one.trainings for one in ended])) / (rows * FIXED)


def _regret(gap: np.ndarray, chosen: list[int]) -> float:
    return float(gap[np.arange(len(gap)), chosen].mean())


def _missed(gap: np.ndarray, chosen: list[int]) -> float:
    """Share of races in which another row than the best is chosen."""
    return float((gap[np.arange(len(gap)), chosen] > 0).mean())


def better_by_the_margin(noise: float) -> str:
    """A line of the table of races in which the first of four rows is better than the others by just the margin."""
    truth = math.log(MARGIN) * np.array([0.0, 1, 1, 1])
    y = truth[:, None] + noise * np.random.default_rng(0).standard_normal((RACES, 4, FIXED))
    ended = [raced(one, MARGIN) for one in y]
    aside = np.mean([one.words[0] == "set aside" for one in ended])
    chosen = np.mean([one.chosen == 0 for one in ended])
    five = np.mean(y.mean(2).argmin(1) == 0)
    return f"| {noise:g} | {aside:.3f} | {chosen:.2f} | {five:.2f} | {_cost(ended, 4):.2f} |"


def lines() -> Iterator[str]:
    """The page."""
    titles = ("values", "K", "N", "margin", "worse, not so", "interval missed", "best set aside", "cost")
    yield f"| {' | '.join(titles)} | regret | told |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    made = {}
    for rows in ROWS:
        for most in (FIXED, 2 * FIXED):
            for equal in (True, False):
                name = "equal" if equal else "digits"
                made[name, rows, most] = of_digits(np.random.default_rng([rows, most]), rows, most, equal)
        made["all studies", rows, FIXED] = of_studies(np.random.default_rng(rows), rows)
        made["Fashion-MNIST", rows, 3] = of_studies(
            np.random.default_rng(rows), rows, 3, lambda _, metric: "fashion" in metric
        )
    for margin in (MARGIN, None):
        yield from (line(name, races, most, margin) for (name, _, most), races in made.items())
    yield "\nRegret with a margin of 1.1, beside that of other ways to spend trainings:\n"
    titles = ("values", "K", "N", "cost", "race", "missed", "as many for all", "missed", "5 for all", "missed")
    yield f"| {' | '.join(titles)} | halving: cost | regret | missed |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    yield from (
        beside(name, races, most) for (name, _, most), races in made.items() if name != "equal" and most >= FIXED
    )
    yield f"\nRaces of {LEAST} methods of each study, with what the other studies choose:\n"
    yield "| study | power | least gain | cost | best set aside | regret | 5 for all |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    yield from left_out()
    yield "\nRaces of 4 methods, the first better than the others by just the margin, with normal noise:\n"
    yield "| deviation of ln | set aside | chosen | chosen by 5 for all | cost |"
    yield "|---:|---:|---:|---:|---:|"
    yield from map(better_by_the_margin, NOISES)


def main() -> int:
    said = (__doc__ or "").split("\n\n", 1)
    made = f"`python -m benchmarks.races`, {datetime.date.today()}, NumPy {np.__version__}, {platform.machine()}; "
    made += f"{RACES:,} races per line, so a\nshare of 0.05 has a standard error of 0.007.\n"
    text = (
        "\n".join(["# How often a race is right, and what it costs\n", made, said[1].strip() + "\n", *lines()]) + "\n"
    )
    PAGE.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
