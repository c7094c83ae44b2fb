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
from diffusion_lab.verdicts import Verdict, judge, judge_alone
from experiments import objective_values, small_batches_page
from experiments.cells import results_of
from experiments.crossed import ALONE, Cell, Values, cross, gains
from experiments.crossed_default import confirming
from experiments.crossed_page import first, ratios, title, values, weighted_ratios
from experiments.mixed_page import COMBINED, MEAN, best_single
from experiments.study_along import along_of
from experiments.study_cells import seeds, verdicts, word

FOLDER = Path(__file__).resolve().parent
METHODS = {"digits": "fd1k_digits", "fashion_mnist": "fd512_fashion_mnist"}
STEPS = {"digits": 400, "fashion_mnist": 800}  # of the comparison of methods
PREDICTIONS, PREDICTIONS_PAGE = "equal_loss_slots/predictions", "equal_loss_slots/README.md"
LINEAR = "digits, linear, uniform, unit"
FD, BASE, FIXED = "fd2k_digits", "uniform", 5  # seeds that the study of budgets fixed before its first run
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
    judged = judge_alone([own for _, own in lines], "ratio")
    return [Evidence(said, one, page) for (said, _), one in zip(lines, judged, strict=True) if one is not None]


@cache
def _crossed(data: str = "digits") -> Values:
    return first(values(data))


@cache
def _family(schedule: str, prediction: str, weighting: str) -> dict[str, Verdict | None]:
    """Sampler -> its verdict against uniform in one cell of the crossed study, all that are there decided together."""
    found = {
        cell.sampler: own
        for cell, own in _crossed().items()
        if cell._replace(sampler="") == Cell(schedule, prediction, "", weighting) and cell.sampler not in ALONE
    }
    others = [name for name in found if name != BASE]
    judged = judge([found[BASE], *(found[name] for name in others)], "ratio", rising=False)
    return dict(zip(others, judged[1:], strict=True))


def sampler(schedule: str, prediction: str, name: str, weighting: str = "unit") -> Evidence:
    """A sampler against uniform timesteps in the crossed study."""
    found = _family(schedule, prediction, weighting)[name]
    assert found is not None, f"{name} is {BASE}"
    with_weighting = f", {weighting}" * (weighting != "unit")
    return Evidence(f"digits, {schedule}, {prediction}{with_weighting}: `{name}` / `{BASE}`", found, CROSSED)


def cells(one: Cell, other: Cell, data: str = "digits") -> tuple[str, list[float]]:
    """Two cells of the crossed study: their names, of which what both have stands first, and the ratios."""
    both = [a for a, b in zip(one, other, strict=True) if a == b]
    own = [", ".join(a for a, b in zip(x, y, strict=True) if a != b) for x, y in ((one, other), (other, one))]
    said = f"{DATA[data]}, {', '.join(both)}" if both else DATA[data]
    return f"{said}: `{own[0]}` / `{own[1]}`", ratios(_crossed(data), one, other)


def samplers() -> Iterator[Evidence]:
    for schedule, prediction in OWN.items():
        for name in ("logit_normal", "infonoise"):
            yield sampler(schedule, prediction, name)
    yield sampler("linear", "v", "speed")
    for schedule in OWN:
        yield sampler(schedule, "eps", "logit_normal")
    for schedule in OWN:
        yield sampler(schedule, "eps", "infonoise")
    for schedule in ("cosine", "linear"):
        yield sampler(schedule, "v", "logit_normal", "min_snr")
    default = Cell("cosine", "v", "logit_normal", "min_snr")
    yield from alone(CROSSED, [cells(default, default._replace(sampler=BASE), "fashion_mnist14")])
    said = "linear, eps: `logit_normal` / `uniform`"
    yield study(f"digits, {said}, 400 steps", "methods/digits", METHODS["digits"], "logit_normal")
    yield paper(f"digits, {said}, 2,000 steps", "adaptive_beta/table1", "Log-normal", "linear")
    yield study(f"Fashion-MNIST, {said}", "methods/fashion_mnist", METHODS["fashion_mnist"], "logit_normal")


def budgets() -> Iterator[Evidence]:
    found = along_of(FOLDER / "budgets" / "digits", "max_steps", "fd2k_digits")
    steps = [n for n, effect in zip(found.values, found.rows[0].effects, strict=True) if effect and effect.n >= FIXED]
    for metric, to in (("fd2k_digits", ""), ("test_fd2k_digits", ", distance to held-out images")):
        for n in steps:
            row = f"{n:,} steps{to}: `logit_normal` / `{BASE}`"
            yield study(row, f"budgets/digits_{n}", metric, "logit_normal-v-min_snr")
    for n in (steps[0], steps[-1]):
        yield study(f"{n:,} steps: `switch` / `{BASE}`", f"budgets/digits_{n}", "fd2k_digits", "switch-v-min_snr")


def weightings() -> Iterator[Evidence]:
    found = weighted_ratios(_crossed())
    said = f"digits, mean over {len(found.cells)} combinations of schedule, prediction and sampler: `min_snr` / `unit`"
    default = Cell("cosine", "v", "logit_normal", "min_snr")
    unit = default._replace(weighting="unit")
    lines = [(said, found.means), cells(default, unit), cells(default, unit, "fashion_mnist14")]
    lines += [
        cells(one, one._replace(weighting="unit"))
        for one in (default._replace(schedule="linear"), default._replace(schedule="edm", prediction="edm"))
    ]
    yield from alone(CROSSED, lines)
    for name in ("min_snr", "adaptive", "pseudo_huber"):
        yield study(f"digits, cosine, v, uniform: `{name}` / `unit`", "newer/diffusion", FD, f"weighting={name}")
    yield paper("digits, cosine, eps, uniform: `p2` / `unit`", "adaptive_beta/table1", "P2", "cosine")
    for name in ("min_snr", "p2"):
        file = "methods/fashion_mnist"
        yield study(f"Fashion-MNIST, linear, eps: `{name}` / `unit`", file, METHODS["fashion_mnist"], name)
    named = {
        "drawn / weighted, mean": "drawn in proportion to the objective / uniform and weighted, mean of four",
        (best := "min_snr drawn / weighted, each at its best learning rate"): best,
    }
    for line in alone("objective/README.md", list(objective_values.means().items())):
        batches, _, name = line.said.partition(": ")
        if name in named:
            yield line._replace(said=f"digits, cosine, v, {batches}: {named[name]}")


def predictions() -> Iterator[Evidence]:
    lines = []
    for of in (Cell("cosine", "eps", "logit_normal", "min_snr"), Cell("cosine", "eps", BASE, "unit")):
        pairs = (("v", "eps"), ("x0", "eps"), ("v", "x0"))
        lines += [cells(of._replace(prediction=a), of._replace(prediction=b)) for a, b in pairs]
    yield from alone(CROSSED, lines)
    adapts = Cell("linear", "x0", "loss_second_moment", "unit")
    yield from alone(CROSSED, [cells(adapts, adapts._replace(prediction="eps"))])
    for name in ("x0", "v"):
        yield paper(f"{LINEAR}, 2,000 steps: `{name}` / `eps`", PREDICTIONS, name)
    yield from alone(PREDICTIONS_PAGE, [_at_the_end(f"{LINEAR}, 2,000 steps: `x0` / `v`", "x0", "v")])
    for data, metric in METHODS.items():
        for name in ("x0", "v"):
            said = f"{DATA[data]}, linear, uniform, unit, {STEPS[data]} steps: `{name}` / `eps`"
            yield study(said, f"methods/{data}", metric, f"ddpm prediction={name}")


def _at_the_end(said: str, one: str, other: str) -> tuple[str, list[float]]:
    """Two rows of the table of predictions, at the last step."""
    path = FOLDER / "equal_loss_slots" / "results" / "mini" / "predictions" / "per_seed.csv"
    own, base = (seeds(path, row, FD, "end") for row in (one, other))
    return said, [own[seed] / base[seed] for seed in sorted(own.keys() & base.keys())]


def mixing() -> Iterator[Evidence]:
    least, of = "the head with the least loss", f"{LINEAR}, 2,000 steps"
    yield paper(f"{of}: {least} / `eps`", PREDICTIONS, "mixed, the least of three")
    outcomes = results_of(PREDICTIONS, "mini").outcomes
    found = next(one for one in outcomes if one.cell.row.title == "mixed, the least of three")
    assert found.beside is not None and found.beside.compared is not None
    yield Evidence(f"{of}: {least} / `eps`, {OVER_TRAINING}", found.beside.compared, PREDICTIONS_PAGE)
    yield paper(f"{of}: all heads, combined by least squares / `eps`", PREDICTIONS, "combined")
    pairs = (f"{least} / `x0` alone", "mixed"), ("combined / `x0` alone", "combined")
    yield from alone(PREDICTIONS_PAGE, [_at_the_end(f"{of}: {said}", row, "x0") for said, row in pairs])
    for data, metric in METHODS.items():
        for said, row in ((least, "mixed_paper"), ("combined", "combined")):
            where = f"{DATA[data]}, linear, {STEPS[data]} steps"
            yield study(f"{where}: {said} / `eps`", f"methods/{data}", metric, row)
    objectives = {"unit": "weight 1", "v": "the objective of v"}
    for objective, of in objectives.items():
        single, found = best_single(objective)
        aside = [name for name in (*MEAN.values(), COMBINED) if name in found]
        choosing = found.keys() - aside
        for name in (min(choosing, key=lambda one: found[one].size), *aside):
            of_all = f", the best of {len(choosing)} selections" * (name in choosing)
            where = f"digits, linear, 400 steps, {of}"
            yield Evidence(f"{where}: {name}{of_all} / `{single}` alone", found[name], "mixed/README.md")


def schedules() -> Iterator[Evidence]:
    cosine = Cell("cosine", "v", "logit_normal", "unit")
    best = {"linear": "infonoise", "rectified_flow": "logit_normal", "edm": "infonoise"}
    others = [Cell(name, OWN[name], of, "unit") for name, of in best.items()]
    lines = [(f"digits: `{title(one)}` / `{title(cosine)}`", ratios(_crossed(), one, cosine)) for one in others]
    flow, small = others[1], _crossed("fashion_mnist14")
    lines.append((f"{DATA['fashion_mnist14']}: `{title(flow)}` / `{title(cosine)}`", ratios(small, flow, cosine)))
    yield from alone(CROSSED, lines)
    for data, _, found in confirming():
        yield Evidence(f"{DATA[data]}: the default / `linear, eps, uniform`", found, CROSSED)


def learned() -> Iterator[Evidence]:
    for schedule, prediction in (("cosine", "v"), ("cosine", "eps"), ("edm", "eps")):
        yield sampler(schedule, prediction, "infonoise")
    for schedule, prediction in (("cosine", "v"), ("linear", "v"), ("linear", "eps")):
        for name in ("loss_second_moment", "equal_loss_slots"):
            yield sampler(schedule, prediction, name)
    of = [Cell(*one, "learned_beta", "unit") for one in (("cosine", "v"), ("cosine", "x0"), ("edm", "edm"))]
    yield from alone(CROSSED, [cells(one, one._replace(sampler=BASE)) for one in of])
    for column in ("linear", "cosine"):
        yield paper(f"digits, {column}, eps: `learned_beta` / `{BASE}`", "adaptive_beta/table1", "Ours", column)
    for data, metric in METHODS.items():
        for name in ("slots", "variance"):
            yield study(f"{DATA[data]}, linear, eps: `{name}` / `{BASE}`", f"methods/{data}", metric, name)
    said = "digits, linear, eps, mean over batches of 4 to 128"
    found = small_batches_page.means()
    yield from alone("small_batches/README.md", [(f"{said}: {name}", own) for name, own in found.items()])


def momentum() -> Iterator[Evidence]:
    for row, name in (("ID + MDLRC + CLTS", "both"), ("ID + MDLRC", "MDLRC"), ("ID + MD", "falling momentum alone")):
        yield paper(f"digits, cosine, 2,000 steps: {name} / neither", "clts_mdlrc/figure6", row)
    yield sampler("cosine", "v", "clts")
    mean = gains(*cross(_crossed()))["rectified_flow", "clts"]
    yield Evidence(f"digits, rectified_flow, mean over predictions: `clts` / `{BASE}`", mean, CROSSED)
    for data, metric in METHODS.items():
        for name in ("clts", "mdlrc", "clts_mdlrc"):
            said = f"{DATA[data]}, linear, eps, {STEPS[data]} steps: `{name}` / neither"
            yield study(said, f"methods/{data}", metric, name)
    path = FOLDER / "methods" / "digits.per_seed.csv"
    mdlrc, control = (seeds(path, row, METHODS["digits"]) for row in ("mdlrc", "ddpm annealing=linear_control"))
    same = [mdlrc[seed] / control[seed] for seed in sorted(mdlrc.keys() & control.keys())]
    said = "digits, linear, eps: `mdlrc` / its learning rate alone (`linear_control`)"
    yield from alone("methods/README.md", [(said, same)])


def precision() -> Iterator[Evidence]:
    for data, metric in METHODS.items():
        row = "logit_normal-v-min_snr precision=bf16-mixed"
        yield study(f"{DATA[data]}: `bf16-mixed` / `32-true`", f"precision/{data}", metric, row)


def newer() -> Iterator[Evidence]:
    base = "digits, cosine, v, uniform, unit"
    for row in ("method=self_conditioning", "sampler=switch", "coupling=offset", "order=curriculum"):
        yield study(f"{base}: `{row}` / without", "newer/diffusion", FD, row)
    for row in ("method=contrastive_flow", "method=meanflow", "auxiliary=repa", "auxiliary=dispersive"):
        yield study(f"digits, flow: `{row}` / `method=flow`", "newer/flow", FD, row)
    within = "solver=guided solver.interval=[0.3,5]"
    for row in ("solver=autoguided", "solver=guided", within):
        yield study(f"digits, classes: `{row}` / no guidance", "newer/guidance", FD, row)
    for row in ("solver=autoguided", within):
        said = f"digits, classes: `{row}` / no guidance, distance to held-out images"
        yield study(said, "newer/guidance", f"test_{FD}", row)


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
