"""Notes of a report: protocols, versions, unfinished runs, warnings, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from diffusion_lab.printable import one_line
from diffusion_lab.reports.comparison.cells import Cell, Column, Comparison, number
from diffusion_lab.reports.comparison.groups import Group, data_notes
from diffusion_lab.reports.comparison.metrics import directed, metric_names, protocols, values
from diffusion_lab.runs import shell_commands
from diffusion_lab.runs.identity import words_for_latents
from diffusion_lab.runs.run import Run, RunFolder
from diffusion_lab.verdicts import CLAIM_SEEDS

NAMES_SHOWN = 4  # of further metrics
PENDING_SHOWN = 10  # if more runs have not started, they are counted, not listed
_RESTARTABLE = ("failed", "interrupted", "lost", "pending")


class Trouble(NamedTuple):
    """A run that is not done."""

    run: str
    status: str
    progress: str
    overrides: str
    cause: str
    log: str
    traceback: str


class Measurement(NamedTuple):
    """A protocol of a metric, and the labels of the groups that used it."""

    metric: str
    labels: list[str]
    protocol: dict[str, Any]

    def text(self, key: str, word: Callable[[Any], Any] = lambda value: value) -> str:
        """The `word` for a setting as text; without one, whether the metric does not depend on it: a protocol, which
        always has the weights, has only what the metric needs."""
        found = word(self.protocol.get(key))
        if found not in (None, ""):
            return _joined(found)
        return "not needed" if "ema_decay" in self.protocol and key not in self.protocol else "not recorded"


def protocol_table(groups: Sequence[Group], metrics: Sequence[str]) -> Comparison:
    """How each metric was measured, one line per metric and protocol."""
    found = [one for metric in metrics for one in _measurements(groups, metric)]
    columns = [
        Column("metric", lambda one: one.metric),
        Column("methods", lambda one: ", ".join(one.labels)),
        Column("extractor", lambda one: one.text("extractor", _name)),
        Column("samples", lambda one: one.text("samples")),
        Column("solver", lambda one: one.text("solver")),
        Column("weights", _weights),
        Column("reference", lambda one: one.text("reference", _reference)),
        Column("latent seed", lambda one: one.text("seed")),
    ]
    lines = [[Cell(column.cell(one)) for column in columns] for one in found]
    return Comparison([column.heading for column in columns], lines, "", [])


def _measurements(groups: Sequence[Group], metric: str) -> list[Measurement]:
    """The protocols of a metric; one that all groups with the metric used is of "all"."""
    found: list[Measurement] = []
    for group in groups:
        for protocol in protocols(group, metric):
            known = next((one for one in found if one.protocol == protocol), None)
            if known is None:
                found.append(Measurement(metric, [group.label], protocol))
            else:
                known.labels.append(group.label)
    finished = sum(bool(protocols(group, metric)) for group in groups)
    return [one._replace(labels=["all"]) if len(one.labels) == finished else one for one in found]


def _name(extractor: Any) -> Any:
    return extractor.get("name") if isinstance(extractor, dict) else extractor


def _weights(one: Measurement) -> str:
    if "ema_decay" not in one.protocol:
        return "not recorded"
    decay = one.protocol["ema_decay"]
    return "raw weights" if decay is None else f"EMA {decay}"


def _reference(reference: Any) -> str:
    """`digits train, 1500 images, 0123456789ab`"""
    known = reference if isinstance(reference, dict) else {"name": reference}
    parts = [known.get("dataset") or known.get("name"), known.get("split")]
    words = [" ".join(str(part) for part in parts if part)]
    words += [f"{known['n']} images"] if known.get("n") else []
    words += [_joined(known["fingerprint"])] if known.get("fingerprint") else []
    return ", ".join(words)


def _joined(value: Any) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def earlier_steps(group: Group, metric: str) -> list[int]:
    """The steps at which finished runs of a group were measured before they went on, or at an evaluation."""
    steps = {(run.step_of_last(metric), run.step) for run in group.done}
    return sorted({at for at, last in steps if at is not None and at < last})


def also_measured(groups: Sequence[Group], metric: str) -> str:
    """The metrics of finished runs that a table by `metric` does not have, and the word for it; "" without any."""
    have = [name for name in metric_names(groups) if name != metric and any(values(group, name) for group in groups)]
    if not have:
        return ""
    more = f" and {len(have) - NAMES_SHOWN} more" if len(have) > NAMES_SHOWN else ""
    return f"Also measured: {', '.join(have[:NAMES_SHOWN])}{more}; use --metric {have[0]} for a table of it."


def troubles(folder: RunFolder, metric: str) -> list[Trouble]:
    """All runs that are not done, failed ones first, with their newest value of the metric."""
    order = ("failed", "damaged", "unreported", "lost", "interrupted", "pruned", "running", "pending")
    runs = sorted(folder.unfinished, key=lambda run: order.index(run.status))
    return [
        Trouble(
            run=one_line(folder.relative(run.folder) if run.folder != folder.path else run.name),
            status=run.status,
            progress=_progress(run, metric),
            overrides=one_line(shlex.join(run.overrides)),
            cause=one_line(run.cause),
            log=one_line(str(run.log)) if run.log else "",
            traceback=str((run.result.get("error") or {}).get("traceback") or "") if run.status == "failed" else "",
        )
        for run in runs
    ]


def listed(troubles: Sequence[Trouble]) -> tuple[list[Trouble], list[Trouble]]:
    """The runs to list, and, if they are many, separately those that have not started."""
    waiting = [trouble for trouble in troubles if trouble.status == "pending"]
    if len(waiting) <= PENDING_SHOWN:
        return list(troubles), []
    return [trouble for trouble in troubles if trouble.status != "pending"], waiting


def _progress(run: Run, metric: str) -> str:
    value = run.last(metric)
    step = f"step {run.step} of {run.max_steps}" if run.max_steps else f"step {run.step}" if run.step else "-"
    return step if value is None else f"{step}, {metric} {number(value)}"


def versions(runs: Sequence[Run]) -> dict[str, list[str]]:
    """library -> versions used by the runs, with the commit as `git`; one each if the runs can be compared."""
    used: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.info:
            recorded = dict(run.info.get("versions") or {}) | {"git": run.info.get("git") or "not a checkout"}
            for library, version in recorded.items():
                used.setdefault(library, {})[str(version)] = None
    return {library: list(values) for library, values in used.items()}


def version_warnings(folder: RunFolder) -> list[str]:
    """Warnings about different libraries or uncommitted code, and about data that changed between runs."""
    notes = data_notes([run for run in folder.runs if run.config])
    for library, used in versions(folder.runs).items():
        if len(used) > 1:
            notes.append(f"The runs used different versions of {library}: {', '.join(used)}.")
        elif library == "git" and used[0].endswith("+"):
            notes.append(f"The checkout ({used[0]}) had uncommitted changes.")
    return notes


def warnings(folder: RunFolder, groups: Sequence[Group], metric: str) -> list[str]:
    """Reasons to read the table of these groups with care."""
    notes = []
    for group in groups:
        if len(protocols(group, metric)) > 1:
            notes.append(f"{group.label}: its seeds measured {metric} in different ways, so they are not averaged.")
        if at := earlier_steps(group, metric):
            steps = ", ".join(map(str, at))
            notes.append(f"{group.label}: {metric} was measured at step {steps}, and the run has gone on since.")
        if group.duplicates:
            names = ", ".join(folder.relative(run.folder) for run in group.duplicates)
            notes.append(f"{group.label}: {names} repeat a seed of the same configuration and are not counted.")
    few = [g.label for g in groups if 0 < len(g.done) < CLAIM_SEEDS and not any(map(folder.is_of_race, g.runs))]
    if 0 < len(few) < len(groups):  # for all of them, the legend of the table says so
        notes.append(f"A verdict takes {CLAIM_SEEDS} finished seeds; fewer have {', '.join(few)}.")
    return notes


def next_command(folder: RunFolder, groups: Sequence[Group], metric: str) -> tuple[str, str]:
    """The next command to run, and why: finish missing runs, then more seeds, then other metrics."""
    missing = [run for run in folder.runs if run.status in _RESTARTABLE]
    if missing:
        command = _command_for(folder, missing[0])
        whole = command in folder.commands or len(missing) == 1
        why = "runs what is missing and skips what is done" if whole else f"the first of {len(missing)}"
        return _with_latents(command, missing[0]), why
    if any(run.status == "running" for run in folder.runs):
        return shell_commands.command("report", folder.path), "again, when the running ones have ended"
    seeds = sorted({run.seed for run in folder.runs if run.seed is not None})
    few = min(groups, key=lambda group: len(group.done), default=None)
    if seeds and (any(map(folder.is_of_race, folder.runs)) or not directed(groups, metric)):
        seeds = []  # a method that has left a race gets none, and a metric that has no better side no verdict
    if seeds and (few is None or len(few.done) < CLAIM_SEEDS):
        own = few.runs if few else folder.runs
        had = {run.seed for run in own if run.seed is not None}
        # The seeds of the other groups come first: differences are paired by seed.
        wanted = [s for s in dict.fromkeys([*seeds, *range(seeds[0], seeds[0] + 2 * CLAIM_SEEDS)]) if s not in had]
        more = wanted[: max(CLAIM_SEEDS - len(had), 1)]
        command = _with_latents(_command_for(folder, own[-1]), own[-1])
        command = _with_seeds(command, sorted(more), sorted(had))
        of = f" of {few.label}, paired with those of the others" if few and len(groups) > 1 else ""
        return command, f"more seeds{of}: a verdict takes {CLAIM_SEEDS}{_where(folder, own[-1], more)}"
    measured = [{name for run in group.done for name in run.metric_names} for group in groups]
    others = [name for name in metric_names(groups) if name != metric and all(name in names for names in measured)]
    if others or metric != "val/loss":
        other = others[0] if others else "val/loss"
        return shell_commands.command("report", folder.path, "--metric", other), "the same, by another metric"
    run = shell_commands.setting("run", folder.runs[-1].folder)
    return shell_commands.command("sample", run, "seeds=0-63"), "there is no other metric: look at samples"


def _where(folder: RunFolder, run: Run, seeds: Sequence[int]) -> str:
    """`; then: diffusion-lab report runs`, if the runs of these seeds will lie outside of the folder of the report: a
    single run's lie beside it, and several are a sweep with a folder of its own beside it."""
    if run.folder.parent in folder.sweeps or folder.path.resolve() != run.folder.resolve():
        return ""
    return f"; then, for all of them: {shell_commands.command('report', run.folder.resolve().parent)}"


def _command_for(folder: RunFolder, run: Run) -> str:
    """The newest command of the run's sweep that includes it; outside a sweep, its own."""
    commands = folder.sweeps.get(run.folder.parent, ())
    asked = sorted(commands, key=lambda command: _asks_for(command, run.overrides))  # the newest of those alike last
    asked = [command for command in asked if _asks_for(command, run.overrides)]
    return [run.command, *commands, *asked][-1]


def _with_latents(command: str, run: Run) -> str:
    """The command, whose runs are evaluated on latents by the rule of the run, also if that was another default."""
    words = shlex.split(command)
    more = words_for_latents(run.config, words)
    return shlex.join([*words, *more]) if more else command


def _asks_for(command: str, overrides: Sequence[str]) -> float:
    """1 if each override is in the command, alone or in a list a,b,c; of the command for a table, whose runs have more
    settings, 1 if the run's experiment has its name, and 0.5 if it is of the same paper. Else 0."""
    typed = shlex.split(command)
    if _is_table(typed):
        own = next((word.removeprefix("experiment=") for word in overrides if word.startswith("experiment=")), "")
        return float(own in typed) or 0.5 * any(word.startswith(f"{own.partition('/')[0]}/") for word in typed)
    words = [word.partition("=") for word in typed]
    wanted = [override.partition("=") for override in overrides]
    return float(
        all(any(k == key and v in (value, *value.split(",")) for k, _, value in words) for key, _, v in wanted)
    )


def _is_table(words: Sequence[str]) -> bool:
    return list(words[:2]) == ["diffusion-lab", "reproduce"]


def _with_seeds(command: str, seeds: list[int], had: list[int]) -> str:
    """The command with other seeds; as a sweep if they are several. That of a table names those that it had as well,
    because its page is about the seeds that it names."""
    words = [word for word in shlex.split(command) if not word.startswith("seed=")]
    if _is_table(words):
        values = {i + 1 for i, word in enumerate(words) if word == "--seeds"}
        kept = [word for i, word in enumerate(words) if i not in values and word.partition("=")[0] != "--seeds"]
        return shlex.join([*kept, "--seeds", ",".join(map(str, sorted({*had, *seeds})))])
    if len(seeds) > 1 and not {"-m", "--multirun"} & set(words):
        words.insert(words.index("train") + 1 if "train" in words else len(words), "-m")
    return shlex.join([*words, f"seed={','.join(map(str, seeds))}"])
