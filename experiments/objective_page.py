"""The parts of the page of the study of objective and variance, and its figure; the numbers are `objective_values`."""

from __future__ import annotations

import math
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from diffusion_lab.intervals import Interval, mean_interval
from diffusion_lab.plotting import line_style, log_axis, panel_title, panels
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import judge_alone
from experiments import objective_values as study
from experiments.objective.split import OBJECTIVES, SPLITS
from experiments.study_cells import UNDECIDED, outcome, right_or_wrong, word

MARKERS = {"w": "o", "p": "s", "optimal": "v", "inverted": "^"}
TICKS = (0.7, 0.8, 0.9, 1, 1.2, 1.4)


def summary() -> str:
    """The table of slopes and shares."""
    lines = ["| images of a batch | seeds | between objectives | noise | slope | interval | without `inverted` |"]
    lines.append("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for batch in study.measured():
        part, found, without = study.shares(study.values(batch)), study.slope(batch), study.slope(batch, "inverted")
        lines.append(
            f"| {batch} | {found.n} | {_percent(part)} | {100 * part.noise:.0f} % | "
            f"{found.mean:+.3f} | {_ends(found)} | {without.mean:+.3f} {_ends(without)} |"
        )
    return "\n".join(lines)


def ratios(batch: str) -> str:
    """The table of a batch size: the distance with all in the weights, and the ratios of the other divisions to it."""
    lines = [f"| objective | w | {' | '.join(f'{one}, ratio | interval' for one in SPLITS[1:])} |"]
    lines.append("| --- | ---: |" + " ---: | ---: |" * len(SPLITS[1:]))
    for name, own, found in zip(OBJECTIVES, study.values(int(batch)), study.verdicts(int(batch)), strict=True):
        cells = [f"{math.exp(own[0].mean()):.3g}"]
        for one in found[1:]:
            marked = "**{}**" if one is not None and one.decided else "{}"
            cells += [marked.format(words) for words in (("", "") if one is None else ratio_words(one))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def objectives() -> str:
    """The table of the objectives' ratios to the lowest one at each batch size."""
    found = [study.of_objectives(batch) for batch in study.measured()]
    lines = [f"| objective | {' | '.join(f'batches of {batch} | interval' for batch in study.measured())} |"]
    lines.append("| --- |" + " ---: | ---: |" * len(found))
    for k, name in enumerate(OBJECTIVES):
        cells = []
        for lowest, judged in found:
            one = judged[k]
            marked = "**{}**" if one is not None and one.decided else "{}"
            cells += ["lowest", ""] if k == lowest or one is None else [marked.format(w) for w in ratio_words(one)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def causes() -> str:
    """The table of what the slope and the shares rest on, also looked at afterwards."""
    lines = [
        "| images of a batch | slope without `w` | between objectives without v | the second moment explains | the "
        "spread explains |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for batch in study.measured():
        y, found = study.values(batch), study.slope(batch, "w")
        shown = [f"{100 * study.explained(y.mean(2), x):.0f} %" for x in (study.second_moments(), study.spreads())]
        lines.append(
            f"| {batch} | {found.mean:+.3f} {_ends(found)} | {_percent(study.shares(y[1:]))} | {' | '.join(shown)} |"
        )
    return "\n".join(lines)


def own_rates() -> str:
    """The table of these, as geometric means."""
    found = study.own_rates()
    rates = sorted({rate for _, rate in found})
    lines = [f"| min_snr | {' | '.join(f'{rate:g}' for rate in rates)} |", "| --- |" + " ---: |" * len(rates)]
    for split, said in (("w", "weighted"), ("p", "drawn")):
        best = study.best_rate(split, found)
        means = ((rate, f"{math.exp(fmean(found[split, rate])):.3g}") for rate in rates)
        marked = [f"**{mean}**" if rate == best else mean for rate, mean in means]
        lines.append(f"| {said} | {' | '.join(marked)} |")
    return "\n".join(lines)


def moments() -> str:
    """The table of the second moments, as ratios to those of all in the weights."""
    lines = [f"| objective | {' | '.join(SPLITS[1:])} |", "| --- |" + " ---: |" * len(SPLITS[1:])]
    for name, own in zip(OBJECTIVES, np.exp(study.second_moments()[:, 1:]), strict=True):
        lines.append(f"| {name} | {' | '.join('' if math.isnan(one) else f'{one:.2f}' for one in own)} |")
    return "\n".join(lines)


def afterwards() -> str:
    """The table of these, decided together."""
    lines = ["| ratio | seeds | value | verdict |", "| --- | ---: | ---: | --- |"]
    found = study.means()
    for name, one in zip(found, judge_alone([*found.values()], "ratio"), strict=True):
        if one is not None:
            lines.append(f"| {name} | {one.n} | {' '.join(ratio_words(one))} | {word(one)} |")
    return "\n".join(lines)


def predictions() -> str:
    """What each prediction is about, and its outcome."""
    first, middle, last = study.BATCHES
    kinds = [  # what, predicted, the batch sizes that it needs, and their value and outcome
        (f"slope at {first}", "above 0", [first], lambda: _beyond(study.slope(first))),
        (f"fall of the slope from {first} to {last}", "above 0", [first, last], lambda: _beyond(study.fall())),
        (f"share between objectives at {first}", "above 50 %", [first], lambda: _share(first, 0.5)),
        (f"share between objectives at {last}", "above 80 %", [last], lambda: _share(last, 0.8)),
        (
            f"objectives of which `inverted` is worse than `w`, at {first} and {last}",
            "at least 3, and 0",
            [first, last],
            lambda: _inverted(first, last),
        ),
        (f"objectives of which `optimal` is better than `w` at {middle}", "0", [middle], lambda: _optimal(middle)),
        ("lowest objective of each batch size", "one for all", [*study.BATCHES], _lowest),
    ]
    lines = ["| no. | what | value | predicted | outcome |", "| ---: | --- | ---: | --- | --- |"]
    for number, (what, said, needed, found) in zip(("1", "2", "3", "3", "4", "5", "6"), kinds, strict=True):
        missing = [batch for batch in needed if batch not in study.measured()]
        value, known = ("", f"runs missing: {', '.join(map(str, missing))}") if missing else found()
        lines.append(f"| {number} | {what} | {value} | {said} | {known} |")
    return "\n".join(lines)


def _beyond(found: Interval) -> tuple[str, str]:
    return f"{found.mean:+.3f} {_ends(found)}".strip(), outcome(found, 0, math.inf)


def _share(batch: int, least: float) -> tuple[str, str]:
    found = study.shares(study.values(batch))
    return _percent(found), outcome(found.interval, least, math.inf)


def _inverted(first: int, last: int) -> tuple[str, str]:
    (worse, still), (later, later_still) = (_counts(batch, "inverted", "worse") for batch in (first, last))
    can_be = worse + still >= 3 and not later
    known = UNDECIDED if can_be and (worse < 3 or later_still) else right_or_wrong(can_be)
    return f"{worse}, {later}", known


def _optimal(batch: int) -> tuple[str, str]:
    better, _ = _counts(batch, "optimal", "better")
    return f"{better}", right_or_wrong(not better)


def _lowest() -> tuple[str, str]:
    found = [study.of_objectives(batch) for batch in study.BATCHES]
    sure = [OBJECTIVES[best] for best, own in found if all(other.decided for other in own if other)]
    different, every = len(set(sure)) > 1, len(sure) == len(found)
    known = right_or_wrong(not different) if different or every else UNDECIDED
    return ", ".join(OBJECTIVES[best] for best, _ in found), known


def _counts(batch: int, split: str, word: str) -> tuple[int, int]:
    """Objectives of which a division has this verdict against all in the weights, and those where it is open."""
    words = [own[SPLITS.index(split)] for own in study.verdicts(batch)]
    return sum(one.word == word for one in words if one), sum(one.word == UNDECIDED for one in words if one)


def figure() -> Figure:
    """Distance over second moment, each to the geometric mean of its objective's divisions: a panel for each batch,
    with 95 % intervals over seeds, and the slope."""
    drawn, axes = panels(len(study.measured()), 1, 3.6, sharey=True)
    x = study.second_moments() - np.nanmean(study.second_moments(), 1, keepdims=True)
    ends = np.array([np.nanmin(x), np.nanmax(x)])
    for axis, batch in zip(axes, study.measured(), strict=True):
        y = study.values(batch) - np.nanmean(study.values(batch), 1, keepdims=True)
        for i, k in np.argwhere(~np.isnan(x)):
            own, split = mean_interval(y[i, k].tolist()), SPLITS[k]
            if own.low is not None and own.high is not None:
                where, color = math.exp(x[i, k]), line_style(i).color
                axis.vlines(where, math.exp(own.low), math.exp(own.high), color=color, linewidth=1)
                axis.plot(where, math.exp(own.mean), MARKERS[split], color=color, markersize=4)
        axis.plot(np.exp(ends), np.exp(study.slope(batch).mean * ends), color="black", linewidth=1)
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axis.axhline(1, color="gray", linewidth=0.6)
        axis.axvline(1, color="gray", linewidth=0.6)
        axis.set_xlabel("second moment, to its objective's mean")
        panel_title(axis, f"batches of {batch}", "black", len(axes))
    for axis in axes:
        log_axis(axis)
    axes[0].set_ylabel("Fréchet distance, to its objective's mean")
    handles = [
        *(Line2D([], [], color=line_style(i).color, linewidth=3, label=name) for i, name in enumerate(OBJECTIVES)),
        *(Line2D([], [], color="black", marker=of, linestyle="", label=name) for name, of in MARKERS.items()),
    ]
    drawn.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return drawn


def _ends(found: Interval) -> str:
    return "" if found.low is None or found.high is None else f"[{found.low:+.3f}, {found.high:+.3f}]"


def _percent(found: study.Shares) -> str:
    """A share with its interval, cut at 0 and 100 %."""
    share, *ends = (
        f"{100 * min(max(one, 0), 1):.0f}"
        for one in (found.objectives, found.interval.low, found.interval.high)
        if one is not None
    )
    return f"{share} %" + (f" [{', '.join(ends)}]" if ends else "")


PARTS = {
    "moments": moments,
    "causes": causes,
    "own_rates": own_rates,
    "afterwards": afterwards,
    "predictions": predictions,
    "summary": summary,
    "objectives": objectives,
    "ratios": ratios,
}
FIGURES = {"objective/digits.svg": ("objective/digits_256.per_seed.csv", figure)}
