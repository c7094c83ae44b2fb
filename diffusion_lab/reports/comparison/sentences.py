"""What is said below a table: how its rows differ, what its numbers mean and what its verdicts assume."""

from __future__ import annotations

from collections.abc import Sequence

from diffusion_lab.reports.comparison.answer import listed, loss_sentence
from diffusion_lab.reports.comparison.differences import Difference, differences, within
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.rows import Row, Table
from diffusion_lab.verdicts import CLAIM_SEEDS


def unnamed_difference_sentences(groups: Sequence[Group], base: Group) -> list[str]:
    """One sentence for all rows with the same differences from the baseline beyond their names; empty without any."""
    alike: dict[str, list[str]] = {}
    for group in groups:
        words = [difference for difference in unnamed_differences(group, base) if difference.key not in group.said]
        if words:
            alike.setdefault(", ".join(map(str, words)), []).append(group.label)
    return [
        f"Besides its name, {listed(found)} differs from the baseline {base.label} in: {text}."
        if len(found) == 1
        else f"Besides their names, {listed(found)} differ from the baseline {base.label} in: {text}."
        for text, found in alike.items()
    ]


def unnamed_differences(group: Group, base: Group) -> list[Difference]:
    """The differences of a group from the baseline that the names do not imply; empty for the baseline itself."""
    if group is base or not group.config or not base.config:
        return []
    own, other = group.run_config, base.run_config
    different = differences(own, other)
    if own.expected is None or other.expected is None:  # leave out a part that is in the name
        names = {group.name, base.name}
        different = [one for one in different if not (one.own == group.name and one.base in names)]
    if group.by:
        different = [one for one in different if not within(one.key, group.by)]
        methods = [str(one.runs[0].info.get("method")) for one in (group, base)]
        if methods[0] != methods[1] and not any(methods[0] == value for value in group.said.values()):
            different.insert(0, Difference("method", *methods))
    return different


def legend(table: Table) -> str:
    """Explanation of the numbers and of their limits."""
    effects = [row.effect for row in table.rows if row.effect]
    text = "mean over finished seeds at the end"
    text += "; " if table.question.race else " [95 % interval of Student's t]; "
    if effects:
        mean = "geometric mean" if table.scale == "ratio" else "mean"
        text += f"{table.scale} to {table.base.label}: {mean} over the seeds that both have"
        text += f" [{SIMULTANEOUS}]; " if any(one.low is not None and one.n >= CLAIM_SEEDS for one in effects) else "; "
    if any(row.verdict and row.verdict.n >= CLAIM_SEEDS for row in table.rows):
        text += f"{verdict_words(table)}; "
    elif any(row.verdict for row in table.rows):
        text += f"with fewer than {CLAIM_SEEDS} seeds nothing is set in bold: no claim; "
    elif any(row.silent == "direction" for row in table.rows):
        text += "neither direction of this metric is better, so there is no verdict and nothing is set in bold; "
    return text + (
        "cost: time per image relative to the baseline's, paired by seed: geometric mean, and the interval of its "
        "logarithm; comparable only between runs on equal machines"
    )


SIMULTANEOUS = "95 % interval for all rows together; an end that is exactly that of no effect is not in it"


def verdict_words(table: Table) -> str:
    """What the words of the verdicts mean."""
    none = "1" if table.scale == "ratio" else "0"
    return (
        f"verdict: better or worse (bold) where the interval excludes {none}: of tables without any difference, one in "
        f"20 has such a row; equal: surely {table.question.within} of the baseline"
    )


def cautions(table: Table) -> list[str]:
    """The question, if it is not the recorded one, and the assumptions of the verdicts."""
    notes = [table.question.note, loss_sentence(table) if any(row.verdict for row in table.rows) else ""]
    if table.question.estimand != table.estimand:
        notes.append("The runs have no two snapshots at equal images in common, so the end decides, not the training.")
    for row in table.rows:
        if row.diverged:
            rest = "" if row.note else "; its numbers are those of the others"
            notes.append(f"{row.diverged} of {len(row.group.done)} seeds of {row.group.label} diverged{rest}.")
    counts = [row.verdict.n for row in table.rows if row.verdict and row.verdict.n >= CLAIM_SEEDS]
    if counts and 0 < table.question.seeds < max(counts):
        notes.append(f"The sweep was to have {table.question.seeds} seeds, and {max(counts)} are compared.")
    if counts:
        notes.append(
            "Fix the number of seeds before the first run: adding seeds from n = 3 to 12 until a row is decided "
            "finds a difference where there is none in 18 % of the cases instead of 5 % (simulated for one row)."
        )
    return [note for note in notes if note]


def of_other_hours(rows: Sequence[Row], baseline: str) -> list[str]:
    """Why some of the costs have no interval; empty if all that could have one have it."""
    found = [row.group.label for row in rows if row.cost and row.cost.n > 1 and not row.same_hours]
    if not found:
        return []
    return [
        f"The cost of {listed(found)} has no interval: their runs and those of {baseline} were not trained in the "
        "same hours, so the ratio includes other load on the machine. In one sweep, methods alternate seed by seed."
    ]
