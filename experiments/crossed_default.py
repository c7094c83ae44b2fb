"""Whether the crossed study's best cell should be the default of `diffusion-lab train`, for its page.

The best of many cells is partly luck, so it is compared with the papers' default again, on seeds and on data sets that
had no part in the choice; their intervals hold for all of these comparisons at once.
"""

from __future__ import annotations

import math

from diffusion_lab.intervals import mean_interval
from diffusion_lab.verdicts import Verdict, judge_alone
from experiments.crossed import FOLDER, Cell, Values, values_of
from experiments.crossed_page import (
    DEFAULT,
    FIRST_SEEDS,
    decided,
    first,
    ranked,
    ratio,
    ratios,
    shown,
    table,
    title,
    values,
)
from experiments.study_cells import word

CHOSEN_ON = "digits"
LONGER = "digits_longer"  # both cells with four times the steps, evaluated every 200


def best() -> Cell:
    """The cell with the lowest mean on the seeds for choosing."""
    return ranked(first(values(CHOSEN_ON)))[0]


def confirming() -> list[tuple[str, list[int], Verdict]]:
    """(data set, seeds, verdict on best over default) of all that had no part in the choice."""
    names = sorted(path.name.removesuffix(".values.csv") for path in FOLDER.glob("*.values.csv"))
    found = []
    for name in (name for name in names if name != LONGER):
        of = values(name)
        common = sorted(set(of.get(best(), ())) & set(of.get(DEFAULT, ())))
        seeds = [seed for seed in common if name != CHOSEN_ON or seed not in FIRST_SEEDS]
        if seeds:
            found.append((name, seeds, ratios(of, best(), DEFAULT, seeds)))
    judged = judge_alone([sizes for *_, sizes in found], "ratio")
    return [(name, seeds, one) for (name, seeds, _), one in zip(found, judged, strict=True) if one is not None]


def confirmed(_: str) -> str:
    """A table of the best cell beside the default: where it was chosen, then all that confirm it."""
    chosen = shown(ratio(values(CHOSEN_ON), best(), DEFAULT, list(FIRST_SEEDS)))
    lines = [[f"{CHOSEN_ON} (chosen on)", *_line(values(CHOSEN_ON), list(FIRST_SEEDS)), chosen, ""]]
    for name, seeds, one in confirming():
        lines.append([name, *_line(values(name), seeds), decided(one), word(one)])
    head = ["images", "seeds", f"`{title(DEFAULT)}`", f"`{title(best())}`", "ratio", "verdict"]
    return table(head, lines)


def sooner(_: str) -> str:
    """A sentence: after how many of its images the best cell is where the default ends, for each seed."""
    steps = evaluated()
    at = {step: values_of(FOLDER / f"{LONGER}.values.csv", step) for step in steps}
    ends = at[steps[-1]][DEFAULT]
    reached = {
        seed: next((step for step in steps if at[step][best()][seed] <= end), math.inf) for seed, end in ends.items()
    }
    each = ", ".join(f"{reached[seed]:g} (seed {seed})" for seed in sorted(reached))
    share = max(reached.values()) / steps[-1]
    return (
        f"Trained for {steps[-1]:,} steps and evaluated every {steps[0]}, `{title(best())}` is at or below the "
        f"distance at which `{title(DEFAULT)}` ends after {each} steps: at most {share:.0%} of the images."
    )


def evaluated() -> list[int]:
    """The steps at which the longer runs were evaluated."""
    lines = (FOLDER / f"{LONGER}.values.csv").read_text(encoding="utf-8").splitlines()
    at = lines[0].split(",").index("step")
    return sorted({int(line.split(",")[at]) for line in lines[1:]})


def _line(of: Values, seeds: list[int]) -> list[str]:
    """Seeds, and both geometric means with their intervals."""
    words = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    logs = [[math.log(of[cell][seed]) for seed in seeds] for cell in (DEFAULT, best())]
    return [words, *(shown(mean_interval(own)) for own in logs)]


PARTS = {part.__name__: part for part in (confirmed, sooner)}
