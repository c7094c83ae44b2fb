"""The sentence of `replacement`."""

from __future__ import annotations

from typing import Any

import numpy as np

from diffusion_lab.analyses.base import Result
from diffusion_lab.analyses.replacement_figure import per_model
from diffusion_lab.analyses.seeds import band_words, with_error
from diffusion_lab.analyses.words import joined

MOST = 3  # groups in words


def sentence_of(result: Result) -> str:
    """The PSNR of each range, the largest gain, hue error and Fréchet distance there, and what was left out."""
    facts = result.facts
    said = joined([_group(result, group) for group in facts["groups"]], MOST)
    words = band_words([group["members"] for group in facts["groups"]], f"{facts['images']} images")
    kept = (
        f"the last {facts['last']} timesteps are never replaced, because C1 = 1 and C2 = 0 at the last one return the "
        "truth itself"
        if facts["last"]
        else "a set with the last timestep, where C1 = 1 and C2 = 0, returns the truth itself"
    )
    empty = f", which leaves nothing of {' and '.join(facts['empty'])}" if facts["empty"] else ""
    paired = "" if facts["paired"] else "; the truth is any test image, since the model is given no small version of it"
    needs = facts["frechet_needs"]
    few = f"; a Fréchet distance would need {needs} images" if needs and "frechet" not in result.data else ""
    return f"{said}; {kept}{empty}{paired}{few}; \N{PLUS-MINUS SIGN} is {words}."


def _group(result: Result, group: dict[str, Any]) -> str:
    """With the true x0 at timesteps 10 to 100 ..."""
    sets = result.facts["sets"]
    mean, error = per_model(result, "psnr")
    psnr, _ = with_error(mean, error, group["members"])
    ranges = [v for v, name in enumerate(sets) if v and not name.startswith("all except")]
    if not ranges:
        return f"{_start(group)} PSNR is {psnr[0]:.1f} dB, and no range is left to replace"
    best = max(ranges, key=lambda v: psnr[v])
    gain, half = _gain(result, group["members"], best)
    others = ", ".join(f"{psnr[v]:.1f} dB at {sets[v]}" for v in ranges if v != best)
    said = (
        f"{_start(group)} true x0 at timesteps {sets[best]} raises the PSNR most, from {psnr[0]:.1f} to "
        f"{psnr[best]:.1f} dB, by {gain:.1f} \N{PLUS-MINUS SIGN} {half:.1f} dB{f' ({others})' if others else ''}"
    )
    for key, name in (("hue_error", "the hue error, in grey levels,"), ("frechet", "the Fréchet distance")):
        if key in result.data:
            values = per_model(result, key)[0][group["members"]].mean(0)
            said += f", and changes {name} from {values[0]:.3g} to {values[best]:.3g}"
    return said


def _start(group: dict[str, Any]) -> str:
    return f"{group['name']}: the" if group["name"] else "The"


def _gain(result: Result, members: list[int], v: int) -> tuple[float, float]:
    """The difference in PSNR to nothing replaced, of the same images from the same noise, and its half width."""
    difference = result.data["psnr"][:, v] - result.data["psnr"][:, 0]  # (M,n)
    error = difference.std(1, ddof=1) / np.sqrt(difference.shape[1])
    mean, half = with_error(difference.mean(1), error, members)
    return float(mean), float(half)
