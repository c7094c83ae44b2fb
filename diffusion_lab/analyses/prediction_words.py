"""The sentence of `prediction_ability`."""

from __future__ import annotations

from diffusion_lab.analyses.base import Result
from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.analyses.words import joined, plus_minus

MOST_CROSSINGS = 3


def sentence_of(result: Result) -> str:
    """Which line is best where, how much worse each is at worst, and the hue errors."""
    data, facts = result.data, result.facts
    lines, t = facts["lines"], data["timesteps"]
    if len(lines) == 1:
        mean = data["line_mean"][0]
        parts = [
            f"The x0-space error goes from {mean[0]:.3g} at t = {t[0]} to {mean[-1]:.3g} at t = {t[-1]}, and there is "
            "no other prediction to compare it with"
        ]
    else:
        parts = [_best(result), _worst(result)]
    parts.append(_hue(result))
    words = band_words([line["rows"] for line in lines], f"{facts['images']} test images")
    return f"{'; '.join(parts)}; decided by {words}."


def _best(result: Result) -> str:
    """The true image is best known by ..., and which lines cross where."""
    names, found = [line["name"] for line in result.facts["lines"]], result.facts["segments"]
    said = [f"{names[line]} at t = {a} to {b}" if a < b else f"{names[line]} at t = {a}" for a, b, line in found]
    share = 100 * float(result.data["decided"].mean())
    first = (
        f"The true image is best known by {joined(said, by=', ')} (one is "
        f"better than all others at {share:.0f} % of the timesteps)"
        if found
        else "No prediction knows the true image better than all others at any t"
    )
    crossed = [
        f"{names[i]} is better than {names[j]} up to t = {a} and worse from {b} on"
        for i, j, a, b in result.facts["crossings"]
    ]
    if not crossed:
        return f"{first}; no two of them cross"
    return f"{first}; {joined(crossed, MOST_CROSSINGS, by=', ')}"


def _worst(result: Result) -> str:
    pairs = zip(result.facts["lines"], result.data["worst_ratio"], result.data["worst_t"], strict=True)
    said = [
        f"{line['name']} {f'{ratio:.3g}' if ratio < 1000 else f'{ratio:,.0f}'} times at t = {t}"
        for line, ratio, t in pairs
    ]
    return f"the largest ratios to the least error are {joined(said, by=', ')}"


def _hue(result: Result) -> str:
    if "hue_error" not in result.data:
        return "the hue error is left out, because the images do not have three colours"
    said = []
    for group in result.facts["groups"]:
        mean, half = with_error(result.data["hue_error"], result.data["hue_standard_error"], group["members"])
        name = f"{group['name']} " if group["name"] else ""
        said.append(f"{name}{plus_minus(float(mean), float(half))}")
    return f"the hue error of the samples in grey levels is {joined(said, by=', ')}"
