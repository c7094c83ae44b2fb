"""How many seeds and how many samples decide a ratio, and in how many hours.

**Model.** With one training seed and m samples, the log ratio of a row to another has the variance

    v(m) = s_T^2 + s_E^2 m_0 / m

s_T^2 is that of training (at infinitely many samples), s_E^2 that of measuring with m_0 samples, whose latents belong
to the seed and are common to all rows. K rows with n seeds, each measured E times, take

    n K (c_T + E c_E m) seconds

**Cheapest number of samples.** v(m) / n at a given number of seconds is proportional to v(m) (c_T + E c_E m), which is
least at

    m = m_0 sqrt(s_E^2 c_T / (s_T^2 E c_E m_0))

Half or twice of it costs at most an eighth more: with x = m / m_opt, a = sqrt(s_T^2 c_T) and b = sqrt(s_E^2 m_0 E c_E)
the product is (a + b)^2 + a b (x + 1/x - 2).

**Ratio decided.** n seeds decide with a probability of 80 % log ratios from `verdicts.size_decided` on, of a deviation
sqrt(v(m)): drawn from the statistic that decides, for tables of K rows.

**Components.** y_ksl is the logarithm of the metric of row k, training seed s and set of latents l; what all rows share
with the same s and l is removed, r_ksl = y_ksl - y_.sl. The mean variance of a difference of two rows is 2/(K - 1)
times the sum over the rows of that of r, so that a two-way analysis of variance of each row's r (mean squares of seeds
MS_S, latents MS_L, both MS_I; Searle, Casella and McCulloch 1992, "Variance Components", section 4.3) gives

    s_T^2 = 2/(K-1) sum_k (MS_S - MS_I) / L          s_E^2 = 2/(K-1) sum_k (MS_L + (S - 1) MS_I) / S

without bias, whether all seeds share their sets of latents or each has its own.

Assumed: normal log ratios, equal variances of the rows, and a variance of measuring that falls as 1/m. The bias of a
Fréchet distance, also of order 1/m, is common to the rows and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import Estimand
from diffusion_lab.verdicts import CLAIM_SEEDS, size_decided

HOUR = 3600.0  # seconds


class Components(NamedTuple):
    """Variances of the log ratio of two rows with one seed."""

    training: float  # s_T^2
    measuring: float  # s_E^2, at `samples`
    samples: int  # m_0

    def variance(self, samples: float) -> float:
        """v(m)."""
        return self.training + self.measuring * self.samples / samples


class Price(NamedTuple):
    """Seconds of one run."""

    training: float  # c_T: all that does not depend on the number of samples
    sample: float  # c_E: one sample of one evaluation
    evaluations: int = 1  # E

    def hours(self, rows: int, seeds: float, samples: float) -> float:
        """Of a sweep, one run after another."""
        return seeds * rows * (self.training + self.evaluations * self.sample * samples) / HOUR


# Log ratios on digits, with 1,000 samples. Both together without the part of the latents that all seeds shared: 144
# cells with 5 seeds of experiments/schedule_by_sampler/digits.values.csv (0.0114 at the end, 0.0074 over training).
# Latents 0.0013, latents with seeds 0.0023: logit_normal and uniform of release 0.1.0's demo, 4 seeds with 5 sets each.
ARCHIVE: Mapping[Estimand, Components] = {
    "end": Components(0.0091, 0.0036, 1000),
    "training": Components(0.0051, 0.0036, 1000),
}
ARCHIVE_SOURCE = "digits: 144 cells with 5 seeds of the crossed study; latents of two methods of the demo of 0.1.0"


def components(values: np.ndarray, samples: int) -> Components:
    """The components of a pilot.

    Args:
        values: (K, S, L) a metric > 0 of each row, seed and set of latents; at least 2 of each.
        samples: of each value.
    """
    rows, seeds, sets = values.shape
    r = np.log(values)
    r = r - r.mean(0)
    of_seed, of_set, mean = r.mean(2, keepdims=True), r.mean(1, keepdims=True), r.mean((1, 2), keepdims=True)
    ms_seeds = sets * ((of_seed - mean) ** 2).sum() / (seeds - 1)
    ms_sets = seeds * ((of_set - mean) ** 2).sum() / (sets - 1)
    ms_both = ((r - of_seed - of_set + mean) ** 2).sum() / ((seeds - 1) * (sets - 1))
    training = 2 / (rows - 1) * (ms_seeds - ms_both) / sets
    measuring = 2 / (rows - 1) * (ms_sets + (seeds - 1) * ms_both) / seeds
    return Components(max(0.0, float(training)), float(measuring), samples)


def training_component(values: np.ndarray, samples: int, known: Components) -> Components:
    """The components of a pilot with one set of latents for each seed, given the variance of measuring.

    Args:
        values: (K, S) a metric > 0 of each row and seed; at least 2 of each.
        samples: of each value.
        known: its variance of measuring is taken over.
    """
    measuring = known.measuring * known.samples / samples
    return Components(max(0.0, mean_variance(np.log(values)) - measuring), measuring, samples)


def mean_variance(y: np.ndarray) -> float:
    """Over all pairs of rows of y (K, n): of the variance of their difference."""
    return 2 / (len(y) - 1) * float((y - y.mean(0)).var(1, ddof=1).sum())


def cheapest_samples(parts: Components, price: Price) -> float:
    """The number of samples at which a verdict is cheapest; infinite if training does not vary."""
    per_sample = parts.training * price.evaluations * price.sample
    return math.sqrt(parts.measuring * parts.samples * price.training / per_sample) if per_sample else math.inf


def ratio_decided(parts: Components, samples: float, seeds: int, rows: int) -> float:
    """The ratio < 1 that a table decides with a probability of 80 %; so does it one above 1 over it.

    Args:
        parts: of the log ratios.
        samples: m.
        seeds: n >= 2.
        rows: K, with the baseline.
    """
    return math.exp(-size_decided(math.sqrt(parts.variance(samples)), seeds, rows))


def two_figures(number: float) -> int:
    """A number >= 10 rounded down to two figures."""
    unit = 10 ** (math.floor(math.log10(number)) - 1)
    return math.floor(number / unit) * unit


class NextHour(NamedTuple):
    """What one more hour buys, or one more seed where that takes longer.

    Attributes:
        now: the ratio that is decided with 80 %; None with fewer than 3 seeds, which decide nothing.
        share: of measuring in the variance of a log ratio, in [0, 1]; None: not known.
        hours: that either costs.
        seeds: more seeds of every row, and the ratio that is then decided.
        samples: samples in a new measurement of every finished run, and the ratio then; None: not more than now, or not
            known.
        training: the snapshots that all runs have, and the ratio that their mean over training would decide; None: at
            most one.
    """

    now: float | None
    share: float | None
    hours: float
    seeds: tuple[int, float]
    samples: tuple[int, float] | None
    training: tuple[int, float] | None = None

    def __str__(self) -> str:
        count, ratio = self.seeds
        more = f"{self.hours:.2g} h more buy {count:,} more seed{'s' * (count != 1)}, which decide {ratio:.2f}"
        if self.samples:
            more += f", or {self.samples[0]:,} samples of every run, which decide {self.samples[1]:.2f}"
        few = f"All rows have only {CLAIM_SEEDS - 1} seeds in common, which decide nothing"
        now = few if self.now is None else f"A ratio of {self.now:.2f} is decided with 80 % now"
        said = f"{now}; {more}{' with 80 %' * (self.now is None)}."
        if self.training:
            said += (
                f" Over training, the {self.training[0]} snapshots of these runs would decide {self.training[1]:.2f}."
            )
        if self.share is None:
            return said
        measuring = (self.share, "measuring"), (1 - self.share, "training")
        (most, first), (least, second) = sorted(measuring, reverse=True)
        return f"Of the variance of a log ratio {most:.0%} come from {first} and {least:.0%} from {second}. {said}"


def next_hour(parts: Components, price: Price, samples: int, seeds: int, rows: int, estimand: Estimand) -> NextHour:
    """What one more hour buys after a sweep. Over training only seeds do: a finished run can be measured again at its
    end alone.

    Args:
        parts: of the log ratios.
        price: of its runs; the new measurement is one evaluation of each.
        samples: m of the sweep.
        seeds: n >= 2 of the sweep.
        rows: K, with the baseline.
        estimand: which values are compared.
    """
    one = price.hours(rows, 1, samples)
    more = max(1, math.floor(1 / one))
    hours = more * one
    m = two_figures(hours * HOUR / (seeds * rows * price.sample))
    measured = (m, ratio_decided(parts, m, seeds, rows)) if m > samples and estimand == "end" else None
    enough = seeds >= CLAIM_SEEDS
    return NextHour(
        ratio_decided(parts, samples, seeds, rows) if enough else None,
        1 - parts.training / parts.variance(samples),
        hours,
        (more, ratio_decided(parts, samples, seeds + more, rows)),
        measured if enough else None,
    )
