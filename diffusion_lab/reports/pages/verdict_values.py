"""The verdicts of a report as plain values, for loggers that keep a summary of a run, such as Weights & Biases.

    METRIC/ROW/ratio, or METRIC/ROW/difference      the effect of the question's estimand
    METRIC/ROW/low, METRIC/ROW/high                 its interval for all rows together, from 3 seeds on
    METRIC/ROW/n                                    seeds that the row and the baseline have in common
    METRIC/ROW/verdict                              better, worse, equal, not decided, identical, no claim
    METRIC/answer, METRIC/baseline, METRIC/estimand, METRIC/margin

With several sections METRIC is the title of the section. A row that cannot be compared, or whose loss does not decide,
has no entry.
"""

from __future__ import annotations

from diffusion_lab.reports.comparison.answer import answer
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.pages.html import Report


def verdict_values(report: Report) -> dict[str, float | str]:
    """Key -> value of all rows of all sections."""
    found: dict[str, float | str] = {}
    for part in report.parts:
        groups, metric = part.section.groups, part.section.metric
        table, name = tabulate(groups, metric, part.section.question), metric
        if len(report.parts) > 1:
            name = part.section.title
        for row in table.rows:
            if row.verdict is None:
                continue
            said = row.verdict
            values: dict[str, float | str] = {table.scale: said.size, "n": said.n, "verdict": said.word}
            if said.low is not None and said.high is not None and said.word not in ("no claim", "identical"):
                values |= {"low": said.low, "high": said.high}
            found |= {f"{name}/{row.group.label}/{key}": value for key, value in values.items()}
        about = {"answer": answer(table), "baseline": table.base.label, "estimand": table.estimand}
        found |= {f"{name}/{key}": value for key, value in about.items()}
        found[f"{name}/margin"] = table.question.margin
    return found
