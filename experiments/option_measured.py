"""What our studies say of an option, for its page: from their committed values, with intervals over the seeds."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import Verdict, judge_alone
from experiments import objective_values, small_batches_page
from experiments.crossed import ALONE, cross, gains
from experiments.crossed_page import OWN_PREDICTIONS, decided, first, table, values, weighting_sentence
from experiments.objective.split import OBJECTIVES, SPLITS
from experiments.study_cells import verdicts, word

FOLDER = Path(__file__).resolve().parent
METHODS = FOLDER / "methods"
NEWER = {  # file of values -> what its first row is
    "diffusion": "uniform timesteps",
    "forcing": "`weighting=min_snr`",
    "flow": "`method=flow`",
    "guidance": "sampling without guidance",
}
STUDIES = {"digits": "fd1k_digits", "fashion_mnist": "fd512_fashion_mnist"}
BASELINE = "ddpm"
STUDY = "../../../experiments/schedule_by_sampler/README.md"
COMPARISON = "../../../experiments/methods/README.md"
SMALL_BATCHES = "../../../experiments/small_batches/README.md"
OBJECTIVE = "../../../experiments/objective/README.md"
DRAWN = {"logit_normal": ("logit_normal",), "by_weight": ("min_snr", "p2")}  # sampler -> objectives that it draws
NEWER_METHODS = "../../../experiments/newer/README.md"
MEAN, PREDICTIONS = "the mean", {"own": OWN_PREDICTIONS}
LATENTS = "Latents common to all seeds: the intervals leave out their effect."


def measured(group: str, name: str) -> str:
    """Markdown; "" for an option that no study has."""
    found = [_newer(group, name)]
    if group == "sampler":
        found = [_sampler(name), *found, _small_batches(name), _drawn(*DRAWN.get(name, ()))]
    if group == "weighting" and name == "min_snr":
        found.insert(0, f"On digits, {weighting_sentence(first(values('digits')))}. [The study]({STUDY}).")
    if group == "weighting" and name in ("min_snr", "p2"):
        found.append(f"{_drawn(name)} `sampler=by_weight` draws like this.")
    if group == "method":
        found.insert(0, _method(name))
    return "\n\n".join(filter(None, found))


def _sampler(name: str) -> str:
    lines = {
        said: {schedule: one for (schedule, sampler), one in found.items() if sampler == name}
        for said, found in gains_of_the_study().items()
    }
    schedules = list(lines[MEAN])
    if not schedules:
        return ""
    together = "for this sampler alone" if name in ALONE else "for all samplers with that schedule and prediction"
    return (
        "Fréchet distance on digits after 800 steps with unit weighting, as a ratio to that of uniform timesteps, "
        "below 1 is better; five seeds, for each prediction and in the mean, with 95 % intervals that hold "
        f"{together}; bold: decided, =: equal within 10 %. {LATENTS} "
        f"[The study]({STUDY}).\n\n"
        + table([f"`{name}` with", *schedules], [[said, *map(decided, own.values())] for said, own in lines.items()])
    )


@cache
def gains_of_the_study() -> dict[str, dict[tuple[str, str], Verdict]]:
    """Prediction, and their mean -> `gains` on digits."""
    y, names = cross(first(values("digits")))
    each = {PREDICTIONS.get(own, own): gains(y[:, [k]], names) for k, own in enumerate(names[1])}
    return each | {MEAN: gains(y, names)}


def _small_batches(name: str) -> str:
    judged = judge_alone([*small_batches_page.means().values()], "ratio")
    lines = []
    for (_, row, base), found in zip(small_batches_page.RATIOS.values(), judged, strict=True):
        if found is not None and row.split(" ")[0] == name:
            marked = "**{}**" if found.decided else "{}"
            lines.append(
                f"`{row}` / `{base}` "
                + marked.format(f"{' '.join(ratio_words(found))}, {word(found)}")
                + f", n = {found.n}"
            )
    if not lines:
        return ""
    return (
        "Fréchet distance on digits with the linear schedule and eps, as a ratio in the mean over batches of 4 to 128 "
        f"images: {'; '.join(lines)}. Below 1 is better; the study's five ratios are decided together. "
        f"[Small batches]({SMALL_BATCHES})."
    )


def _drawn(*names: str) -> str:
    """Objectives in the draws, against the same in the weights."""
    lines = []
    for name in names:
        for batch in objective_values.measured():
            found = objective_values.verdicts(batch)[OBJECTIVES.index(name)][SPLITS.index("p")]
            if found is not None:
                marked = "**{}**" if found.decided else "{}"
                said = marked.format(f"{' '.join(ratio_words(found))}, {word(found)}")
                lines.append(f"{name} at batches of {batch} {said}, n = {found.n}")
    if not lines:
        return ""
    return (
        "One objective, drawn or weighted: Fréchet distance on digits with the cosine schedule and v, timesteps drawn "
        "in proportion to the objective with weight 1, as a ratio to uniform timesteps that are weighted: "
        f"{'; '.join(lines)}. Below 1 is better. [Objective or variance]({OBJECTIVE})."
    )


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


def _newer(group: str, name: str) -> str:
    option, lines = f"{group}={name}", []
    for base, what in NEWER.items():
        for row, found in verdicts(FOLDER / "newer" / f"{base}.per_seed.csv", "fd2k_digits").items():
            if found is not None and row.split(" ")[0] == option:
                words = f" with `{row.partition(' ')[2]}`" if " " in row else ""
                ratio, said = " ".join(ratio_words(found)), word(found)
                marked = f"**{ratio}, {said}**" if found.decided else f"{ratio}, {said}"
                lines.append(f"{marked}, to {what}{words}, n = {found.n}")
    if not lines:
        return ""
    return (
        f"Fréchet distance on digits after 800 steps, as a ratio: {'; '.join(lines)}. Below 1 is better; all rows of a "
        f"base are decided together. [Newer methods]({NEWER_METHODS})."
    )
