"""Finished runs as a pilot: the variances of their log ratios, and what a run takes.

Values of one model on several sets of latents are those of `evaluate run=DIR seeds=[0,1,2]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diffusion_lab.intervals import Estimand
from diffusion_lab.planning import (
    Components,
    NextHour,
    Price,
    components,
    mean_variance,
    next_hour,
    ratio_decided,
    training_component,
)
from diffusion_lab.runs.curve import finite
from diffusion_lab.runs.run import Run
from diffusion_lab.verdicts import over_training

Rows = Sequence[Sequence[Run]]
PRIOR = 2  # degrees of freedom that known variances count as, beside those of a pilot


class Pilot(NamedTuple):
    """The values of the runs that are used.

    Attributes:
        own: (K, S) the value of each row and seed, at the end or over training.
        sets: (K, S, L) at the end, with several sets of latents; L = 1 without.
        samples: of each value.
        snapshots: whose mean `own` is; 1 at the end.
    """

    own: np.ndarray
    sets: np.ndarray
    samples: int
    snapshots: int = 1

    @property
    def words(self) -> str:
        """`2 rows, 3 seeds, 5 sets of latents`."""
        counts = zip(self.sets.shape, ("row", "seed", "set"), strict=True)
        rows, seeds, sets = (f"{count} {word}{'s' * (count != 1)}" for count, word in counts)
        return f"{rows}, {seeds}, {sets} of latents"

    def components(self, known: Components) -> Components:
        """Its variances; one that it cannot tell is that of `known`: training with one seed, measuring with one set."""
        _, seeds, sets = self.sets.shape
        if sets == 1:
            return training_component(self.own, self.samples, known)
        if seeds == 1:
            return Components(known.training, mean_variance(np.log(self.sets[:, 0])), self.samples)
        found = components(self.sets, self.samples)
        at_end = np.array_equal(self.own, self.sets[:, :, 0])
        return found if at_end else training_component(self.own, self.samples, found)

    def moderated(self, known: Components) -> Components:
        """Its variances for a plan, in which that of training is a mean over degrees of freedom: (K-1)(S-1) of the
        pilot, `PRIOR` of `known`.

        Simulated with two rows, two seeds and four sets of latents, the logarithm of a ratio's planned deviation has a
        root mean square error of 0.17 where the truth is `known` (0.51 without), of 0.52 where the variance of training
        is four times as large (0.75) and of 0.30 where it is a quarter (0.35).
        """
        found, (rows, seeds, _) = self.components(known), self.sets.shape
        free = (rows - 1) * (seeds - 1)
        return found._replace(training=(free * found.training + PRIOR * known.training) / (free + PRIOR))


def pilot_of(rows: Rows, metric: str, estimand: Estimand) -> Pilot | None:
    """The values of runs; None if there are not two rows with a common seed, with values > 0 of equal samples by one
    extractor."""
    by_seed = [{run.seed: run for run in row if run.last(metric) is not None} for row in rows]
    by_seed = [row for row in by_seed if row]
    seeds = sorted(set.intersection(*map(set, by_seed)) - {None}) if len(by_seed) > 1 else []
    table = [[row[seed] for seed in seeds] for row in by_seed]
    runs = [run for row in table for run in row]
    rulers = [{key: run.protocol(metric).get(key) for key in ("samples", "extractor")} for run in runs]
    count = rulers[0]["samples"] if rulers else None
    if not isinstance(count, int) or any(ruler != rulers[0] for ruler in rulers):
        return None
    found = [[_sets(run, metric) for run in row] for row in table]
    common = min(len(values) for row in found for values in row)
    sets = np.array([[values[:common] for values in row] for row in found])
    own, snapshots = sets[:, :, 0], 1
    if estimand == "training":
        curves = [[_curve(run, metric) for run in row] for row in table]
        snapshots = len(set.intersection(*(set(curve) for row in curves for curve in row)))
        if not snapshots:
            return None
        own = np.array([over_training(one, "ratio") for one in zip(*curves, strict=True)]).T
    return Pilot(own, sets, count, snapshots) if (sets > 0).all() else None


def price_of(runs: Sequence[Run], metric: str, samples: int) -> Price | None:
    """The mean price of finished runs; validations count as evaluations. None if they did not record it."""
    found = []
    for run in runs:
        clock, count = run.training_clock, len(run.curve(f"metrics/{metric}").steps)
        if clock is not None and run.seconds is not None and count:
            training = float(clock.at(np.array([run.step]))[0])
            found.append(Price(training, (run.seconds - training) / (count * samples), count))
    if not found or not all(price.training > 0 and price.sample > 0 for price in found):
        return None
    training, sample = (float(np.mean(values)) for values in list(zip(*found, strict=True))[:2])
    return Price(training, sample, found[0].evaluations)


def what_next(rows: Rows, metric: str, estimand: Estimand = "end") -> NextHour | None:
    """What one more hour buys; None unless the runs have two common seeds, with latents of their own, and times.

    With several sets of latents of each run it is known what measuring contributes, whatever the latents of the seeds.
    """
    pilot, runs = pilot_of(rows, metric, estimand), [run for row in rows for run in row]
    if pilot is None or pilot.sets.shape[1] < 2:
        return None
    count, seeds, sets = pilot.sets.shape
    if sets == 1 and any(isinstance(run.protocol(metric).get("seed"), int) for run in runs):
        return None  # the variance of these seeds is without that of their common latents
    price = price_of(runs, metric, pilot.samples)
    parts = pilot.components(Components(0.0, 0.0, pilot.samples))
    if price is None or not parts.variance(pilot.samples):
        return None
    found = next_hour(parts, price, pilot.samples, seeds, count, estimand)
    found = found if sets > 1 else found._replace(share=None, samples=None)
    curves = pilot_of(rows, metric, "training") if estimand == "end" and found.now is not None else None
    if curves is None or curves.snapshots < 2:
        return found
    varied = curves.components(Components(0.0, 0.0, pilot.samples))
    return found._replace(training=(curves.snapshots, ratio_decided(varied, pilot.samples, seeds, count)))


def _sets(run: Run, metric: str) -> list[float]:
    """The values of the newest evaluation with several sets of latents, else the run's own value."""
    name = f"{metric}_mean_of_"
    lines = [line for line in run.evaluations if line["name"].startswith(name) and isinstance(line.get("values"), list)]
    values = [finite(value) for value in lines[-1]["values"]] if lines else []
    whole = [value for value in values if value is not None]
    own = run.last(metric)
    return whole if whole and len(whole) == len(values) else [own] if own is not None else []


def _curve(run: Run, metric: str) -> dict[int, float]:
    """Images seen -> value > 0."""
    curve = run.curve(f"metrics/{metric}")
    points = zip(curve.images.tolist(), curve.values.tolist(), strict=True)
    return {images: value for images, value in points if isinstance(value, float) and value > 0}
