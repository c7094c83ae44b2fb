"""What the answers of answers.md rest on: `<!-- cells: evidence QUESTION -->`, a table for each question.

Each line is a ratio of two methods' Fréchet distances from a study's committed values, with the verdict of the study's
own page, where the rows of a table are decided together. Ratios that no study decides (`alone`) are decided together
with the others of their question.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from diffusion_lab.tables.judged import OVER_TRAINING
from diffusion_lab.tables.text import ratio_words
from diffusion_lab.verdicts import Verdict, judge_alone
from experiments.cells import results_of
from experiments.crossed import Cell, Values, cross, gains
from experiments.crossed_default import confirming
from experiments.crossed_page import first, ratios, values, weighted_ratios
from experiments.study_along import along_of
from experiments.study_cells import verdicts, word

FOLDER = Path(__file__).resolve().parent
METHODS = {"digits": "fd1k_digits", "fashion_mnist": "fd512_fashion_mnist"}
DATA = {"digits": "digits", "fashion_mnist": "Fashion-MNIST", "fashion_mnist14": "Fashion-MNIST at 14 pixels"}
CROSSED = "schedule_by_sampler/README.md"
OWN = {"cosine": "v", "linear": "v", "rectified_flow": "velocity", "edm": "edm"}  # prediction of a schedule


class Evidence(NamedTuple):
    """A ratio: what is compared, its verdict, and the page that has it, seen from `experiments/`."""

    said: str
    found: Verdict
    page: str


def study(said: str, file: str, metric: str, row: str) -> Evidence:
    """A row of FILE.per_seed.csv against the first one."""
    found = verdicts(FOLDER / f"{file}.per_seed.csv", metric)[row]
    assert found is not None, f"{row} is the baseline of {file}"
    return Evidence(said, found, f"{Path(file).parts[0]}/README.md")


def paper(said: str, name: str, row: str, column: str | None = None) -> Evidence:
    """A row of a paper's table at scale mini against its baseline."""
    cells = [one for one in results_of(name, "mini").outcomes if one.cell.row.title == row]
    found = [one for one in cells if column in (None, one.cell.column.title)]
    if len(found) != 1:
        raise ValueError(f"row={row!r}, column={column!r} must be one cell of {name}, and are {len(found)}")
    when = f", {OVER_TRAINING}" * (found[0].cell.cell == OVER_TRAINING)
    return Evidence(f"{said}{when}", found[0].compared, f"{name.partition('/')[0]}/README.md")


def alone(page: str, lines: Sequence[tuple[str, Sequence[float]]]) -> list[Evidence]:
    """Ratios of the seeds, decided together."""
    judged = judge_alone([own for _, own in lines], "ratio", rising=False)
    return [Evidence(said, one, page) for (said, _), one in zip(lines, judged, strict=True) if one is not None]


@cache
def _crossed() -> Values:
    return first(values("digits"))


def _sampler(schedule: str, name: str) -> Evidence:
    found = gains(*cross(_crossed()))[schedule, name]
    return Evidence(f"{schedule}: `{name}` / `uniform`, mean over predictions", found, CROSSED)


def _cells(said: str, one: Cell, other: Cell) -> tuple[str, list[float]]:
    return said, ratios(_crossed(), one, other)


def samplers() -> Iterator[Evidence]:
    for schedule, name in (("cosine", "logit_normal"), ("rectified_flow", "logit_normal")):
        yield _sampler(schedule, name)
    yield _sampler("edm", "infonoise")
    yield _sampler("linear", "speed")
    for data, metric in METHODS.items():
        for name in ("logit_normal", "speed"):
            yield study(f"{DATA[data]}, linear, eps: `{name}` / `ddpm`", f"methods/{data}", metric, name)


def budgets() -> Iterator[Evidence]:
    found = along_of(FOLDER / "budgets" / "digits", "max_steps", "fd2k_digits")
    for steps in found.values:
        file = f"budgets/digits_{steps}"
        yield study(f"{steps:,} steps: `logit_normal` / `uniform`", file, "fd2k_digits", "logit_normal-v-min_snr")
    yield study(f"{steps:,} steps: `switch` / `uniform`", file, "fd2k_digits", "switch-v-min_snr")


def weightings() -> Iterator[Evidence]:
    of = "`min_snr` / `unit`, mean over 48 cells of schedule, prediction and sampler"
    found = weighted_ratios(_crossed())
    assert len(found.cells) == 48, "the line says over how many"
    yield from alone(CROSSED, [(of, found.means)])
    for name in ("min_snr", "adaptive", "pseudo_huber"):
        yield study(f"cosine, v: `{name}` / `unit`", "newer/diffusion", "fd2k_digits", f"weighting={name}")
    yield paper("cosine, eps: `p2` / `unit`", "adaptive_beta/table1", "P2", "cosine")
    yield study(
        "Fashion-MNIST, linear, eps: `min_snr` / `unit`", "methods/fashion_mnist", METHODS["fashion_mnist"], "min_snr"
    )


def predictions() -> Iterator[Evidence]:
    default = Cell("cosine", "v", "logit_normal", "min_snr")
    of = {name: default._replace(prediction=name) for name in ("eps", "x0", "v")}
    lines = (("v", "eps"), ("x0", "eps"), ("v", "x0"))
    said = "cosine, logit_normal, min_snr: `{}` / `{}`"
    yield from alone(CROSSED, [_cells(said.format(one, other), of[one], of[other]) for one, other in lines])
    for name in ("x0", "v"):
        yield paper(f"cosine, uniform, unit, 2,000 steps: `{name}` / `eps`", "equal_loss_slots/predictions", name)
    for data, metric in METHODS.items():
        yield study(f"{DATA[data]}, linear, uniform: `x0` / `eps`", f"methods/{data}", metric, "ddpm prediction=x0")


def mixing() -> Iterator[Evidence]:
    name = "equal_loss_slots/predictions"
    yield paper("least of x0, v and eps / `eps`", name, "mixed, the least of three")
    yield paper("learned combination / `eps`", name, "combined")
    yield paper("`x0` alone / `eps`", name, "x0")


def schedules() -> Iterator[Evidence]:
    of = [Cell(schedule, prediction, "logit_normal", "min_snr") for schedule, prediction in OWN.items()]
    lines = [_cells(f"`{one.schedule}`, {one.prediction} / `cosine`, v", one, of[0]) for one in of[1:]]
    yield from alone(CROSSED, lines)
    for data, _, found in confirming():
        yield Evidence(f"{DATA[data]}: the default / linear, eps, uniform, unit", found, CROSSED)


def learned() -> Iterator[Evidence]:
    for schedule in ("edm", "cosine"):
        yield _sampler(schedule, "infonoise")
    for name in ("loss_second_moment", "learned_beta", "equal_loss_slots"):
        yield _sampler("cosine", name)
    yield _sampler("linear", "equal_loss_slots")
    for column in ("linear", "cosine"):
        yield paper(f"{column}, eps: `learned_beta` / `uniform`", "adaptive_beta/table1", "Ours", column)
    yield study("digits, linear, eps: `slots` / `ddpm`", "methods/digits", METHODS["digits"], "slots")
    yield study(
        "Fashion-MNIST, linear, eps: `slots` / `ddpm`", "methods/fashion_mnist", METHODS["fashion_mnist"], "slots"
    )


def momentum() -> Iterator[Evidence]:
    yield paper("cosine, 2,000 steps: CLTS and MDLRC / iddpm", "clts_mdlrc/table3", "ID + Ours")
    for schedule in ("cosine", "rectified_flow"):
        yield _sampler(schedule, "clts")
    for data, metric in METHODS.items():
        for name in ("clts", "mdlrc"):
            yield study(f"{DATA[data]}, linear: `{name}` / `ddpm`", f"methods/{data}", metric, name)


def precision() -> Iterator[Evidence]:
    for data, metric in METHODS.items():
        row = "logit_normal-v-min_snr precision=bf16-mixed"
        yield study(f"{DATA[data]}: `bf16-mixed` / `32-true`", f"precision/{data}", metric, row)


def newer() -> Iterator[Evidence]:
    for row in ("method=self_conditioning", "coupling=offset", "order=curriculum"):
        yield study(f"cosine, v: `{row}` / without", "newer/diffusion", "fd2k_digits", row)
    for row in ("method=contrastive_flow", "auxiliary=dispersive", "auxiliary=repa"):
        yield study(f"flow: `{row}` / `method=flow`", "newer/flow", "fd2k_digits", row)


QUESTIONS: dict[str, Callable[[], Iterator[Evidence]]] = {
    one.__name__: one
    for one in (samplers, budgets, weightings, predictions, mixing, schedules, learned, momentum, precision, newer)
}


def evidence(question: str) -> str:
    """The table of a question."""
    lines = [
        "| compared | seeds | ratio | 95 % interval | verdict | study |",
        "| --- | ---: | ---: | ---: | --- | --- |",
    ]
    for said, found, page in QUESTIONS[question]():
        marked = "**{}**" if found.decided else "{}"
        cells = [marked.format(text) for text in (*ratio_words(found), word(found))]
        lines.append(f"| {said} | {found.n} | {' | '.join(cells)} | [{Path(page).parts[0]}]({page}) |")
    return "\n".join(lines)
