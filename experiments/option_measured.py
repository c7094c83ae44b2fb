"""What our studies say of an option, for its page: from their committed values, with intervals over the seeds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from diffusion_lab.intervals import Interval, holm, paired_difference
from experiments.crossed import cross, gains
from experiments.crossed_page import OWN_PREDICTIONS, SIGNIFICANT, first, shown, table, values, weighting_sentence
from experiments.study_cells import seeds

METHODS = Path(__file__).resolve().parent / "methods"
STUDIES = {"digits": "fd1k_digits", "fashion_mnist": "fd512_fashion_mnist"}
BASELINE = "ddpm"
STUDY = "../../../experiments/schedule_by_sampler/README.md"
COMPARISON = "../../../experiments/methods/README.md"
MINUS = "\N{MINUS SIGN}"


def measured(group: str, name: str) -> str:
    """Markdown; "" for an option that no study has."""
    if group == "sampler":
        return _sampler(name)
    if group == "weighting" and name == "min_snr":
        return f"On digits, {weighting_sentence(first(values('digits')))}. [The study]({STUDY})."
    return _method(name) if group == "method" else ""


def _sampler(name: str) -> str:
    found = {schedule: one for (schedule, sampler), one in gains_of_the_study().items() if sampler == name}
    if not found:
        return ""
    cells = [f"**{shown(interval)}**" if p < SIGNIFICANT else shown(interval) for interval, p in found.values()]
    return (
        "Fréchet distance on digits as a ratio to that of uniform timesteps, below 1 is better; mean over five seeds "
        f"and three predictions (eps, x0, and {OWN_PREDICTIONS}); bold where it differs from 1 after Holm's "
        f"correction. [The study]({STUDY}).\n\n" + table([f"`{name}` on", *found], [["ratio", *cells]])
    )


@cache
def gains_of_the_study() -> dict[tuple[str, str], tuple[Interval, float]]:
    """`gains` on digits."""
    return gains(*cross(first(values("digits"))))


def _method(name: str) -> str:
    rows = []
    for data, metric in STUDIES.items():
        differences = _differences(data, metric)
        if name in differences:
            interval, p = differences[name]
            rows.append([data, f"n = {interval.n}", _bold(_difference(interval), p)])
    if not rows:
        return ""
    return (
        f"Difference of the Fréchet distance to `method={BASELINE}`, paired by seed, below 0 is better; bold "
        "where it differs from 0 after Holm's correction over all methods. "
        f"[The comparison]({COMPARISON}).\n\n" + table(["images", "seeds", "difference"], rows)
    )


@cache
def _differences(data: str, metric: str) -> dict[str, tuple[Interval, float]]:
    """method -> interval of its difference to the baseline, and its p corrected for all methods."""
    file = METHODS / f"{data}.per_seed.csv"
    names = dict.fromkeys(line.split(",")[1] for line in file.read_text(encoding="utf-8").splitlines()[1:])
    base = seeds(file, BASELINE, metric)
    found = {}
    for name in names:
        own = seeds(file, name, metric)
        common = sorted(set(own) & set(base))
        if name != BASELINE and len(common) > 1:
            found[name] = paired_difference([own[s] for s in common], [base[s] for s in common])
    corrected = holm([1.0 if one.p_value is None else one.p_value for one in found.values()])
    return dict(zip(found, zip(found.values(), corrected, strict=True), strict=True))


def _difference(interval: Interval) -> str:
    ends = (interval.mean, interval.low or 0.0, interval.high or 0.0)
    mean, low, high = (f"{x:+.2f}".replace("-", MINUS) for x in ends)
    return f"{mean} [{low}, {high}]"


def _bold(text: str, p: float) -> str:
    return f"**{text}**" if p < SIGNIFICANT else text
