"""A row's ratio or difference to the baseline as text: `0.93 [0.85, 1)`.

An end that is exactly 1 (of a difference, 0) is not in the interval, which the round bracket says. There are
as many decimals as tell the other ends apart from it.
"""

from __future__ import annotations

import math

from diffusion_lab.verdicts import Scale, Verdict

SMALLEST, LARGEST = 1e-4, 1e6  # ratios beyond have an exponent
MOST = 12  # decimals


def effect_text(effect: Verdict, scale: Scale, places: int = 2) -> str:
    """The size, and its interval from 3 seeds on, with the same decimals, `places` for a difference; < 0: exponents."""
    nothing = no_effect(scale)
    if effect.word == "identical":
        return f"{nothing:g}"
    places = _places(effect.size) if scale == "ratio" else places
    ends = effect.interval
    if ends is None:
        return _text(effect.size, scale, places)
    while 0 <= places < MOST and any(end != nothing and round(end, places) == nothing for end in ends):
        places += 1
    low, high = (f"{nothing:g}" if end == nothing else _text(end, scale, places) for end in ends)
    left, right = "(" if effect.low == nothing else "[", ")" if effect.high == nothing else "]"
    return f"{_text(effect.size, scale, places)} {left}{low}, {high}{right}"


def no_effect(scale: Scale) -> float:
    """1 of a ratio, 0 of a difference."""
    return 1.0 if scale == "ratio" else 0.0


def _places(ratio: float) -> int:
    """Decimals of a ratio: at least two significant digits; < 0: an exponent."""
    if not SMALLEST <= ratio < LARGEST:
        return -1
    return 0 if ratio >= 100 else max(2, 1 - math.floor(math.log10(ratio)))


def _text(value: float, scale: Scale, places: int) -> str:
    form = f".{places}f" if places >= 0 else ".2e"
    return minus(f"{value:{'+' if scale == 'difference' else ''}{form}}")


def minus(text: str) -> str:
    """`text` with a typographic minus sign, which is as wide as the plus."""
    return "\N{MINUS SIGN}" + text[1:] if text.startswith("-") else text
