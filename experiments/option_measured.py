"""What our studies say of an option, for its page: from their committed values, with intervals over the seeds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import Verdict
from experiments.crossed import ALONE, cross, gains
from experiments.crossed_page import OWN_PREDICTIONS, decided, first, table, values, weighting_sentence
from experiments.study_cells import verdicts, word

METHODS = Path(__file__).resolve().parent / "methods"
STUDIES = {"digits": "fd1k_digits", "fashion_mnist": "fd512_fashion_mnist"}
BASELINE = "ddpm"
STUDY = "../../../experiments/schedule_by_sampler/README.md"
COMPARISON = "../../../experiments/methods/README.md"
LATENTS = "Latents common to all seeds: the intervals leave out their effect."


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
    together = (
        "this sampler is decided by itself" if name in ALONE else "the samplers of a schedule are decided together"
    )
    return (
        "Fréchet distance on digits as a ratio to that of uniform timesteps, below 1 is better; mean over five seeds "
        f"and three predictions (eps, x0, and {OWN_PREDICTIONS}), with 95 % intervals; {together}; bold: decided, =: "
        f"equal within 10 %. {LATENTS} [The study]({STUDY}).\n\n"
        + table([f"`{name}` on", *found], [["ratio", *map(decided, found.values())]])
    )


@cache
def gains_of_the_study() -> dict[tuple[str, str], Verdict]:
    """`gains` on digits."""
    return gains(*cross(first(values("digits"))))


def _method(name: str) -> str:
    rows = []
    for data, metric in STUDIES.items():
        found = verdicts(METHODS / f"{data}.per_seed.csv", metric).get(name)
        if found is not None:
            marked = "**{}**" if found.decided else "{}"
            said = (" ".join(ratio_words(found)), word(found))
            rows.append([data, f"n = {found.n}", *map(marked.format, said)])
    if not rows:
        return ""
    return (
        f"Fréchet distance as a ratio to that of `method={BASELINE}`, paired by seed, below 1 is better, with 95 % "
        f"intervals that hold for all methods at once. {LATENTS} [The comparison]({COMPARISON}).\n\n"
        + table(["images", "seeds", "ratio", "verdict"], rows)
    )
