"""A run and its repetition, compared bit by bit."""

from __future__ import annotations

import itertools
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from diffusion_lab.files_inside import NotInside, read_inside
from diffusion_lab.runs.digest import has_other_numbers
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import CHECKPOINT, CHECKPOINTS, DIGEST, EVALUATIONS, METRICS, PREVIOUS, RECORD
from diffusion_lab.runs.record import ENDS, as_list, read_record

SHOWN = 100  # characters of a line that differs
CLOCKED = ("Progress", "RunRecord")  # of a checkpoint: the training time, and the folder's own path


def last_step(folder: Path, wanted: int | None) -> int:
    """The step to which a run is repeated: the last one that it has logged, or an earlier one.

    Raises:
        ValueError: it has logged nothing until then, or not as far.
    """
    logged = [int(row["step"]) for row in read_lines(folder / METRICS)]
    if not logged:
        raise ValueError(f"run={folder} must have logged something to compare with, and {METRICS} has no line")
    if wanted is not None and not min(logged) <= wanted <= max(logged):
        raise ValueError(
            f"steps={wanted} must be in {min(logged)}..{max(logged)}, from the first line of {METRICS} to its last"
        )
    return max(logged) if wanted is None else wanted


def training_ends(record: dict[str, Any], step: int) -> list[int]:
    """The values of `max_steps` with which a run was trained one after the other, as far as they take it to a step;
    ValueError for a damaged record."""
    ends = [*as_list(record.get(ENDS)), record["config"].get("max_steps")]
    if not all(type(end) is int for end in ends) or any(a >= b for a, b in itertools.pairwise([-1, *ends])):
        raise ValueError(f"{ENDS}={ends[:-1]} in {RECORD} must be ascending steps before the last; restore a copy")
    needed = next((i for i, end in enumerate(ends) if end >= step), len(ends) - 1)
    return ends[: needed + 1]


class Repetition:
    """A run folder and the folder of its repetition.

    Args:
        theirs: the run.
        ours: its repetition.
        step: the step to which it was repeated.
    """

    def __init__(self, theirs: Path, ours: Path, step: int) -> None:
        self.theirs, self.ours, self.step = theirs, ours, step
        self._lines = self._checkpoints = 0

    @property
    def is_complete(self) -> bool:
        """Whether the repetition has logged the last step."""
        return any(row["step"] >= self.step for row in read_lines(self.ours / METRICS))

    @cached_property
    def _records(self) -> list[dict[str, Any]]:
        return [read_record(folder, "run") for folder in (self.theirs, self.ours)]

    def faults(self) -> list[str]:
        """What differs, a sentence each; empty if all that both have is equal."""
        theirs, ours = (record.get("config_hash") for record in self._records)
        theirs_end, ours_end = (record["config"].get("max_steps") for record in self._records)
        if theirs != ours and theirs_end == ours_end:  # it is part of the hash
            return [f"configuration: its hash is {str(theirs)[:8]}, and its settings give {str(ours)[:8]} here"]
        digest = [f"{DIGEST}: other numbers than those of {METRICS}, in whose place `report` would show them"]
        found = [*self._of_lines(METRICS), *(digest if has_other_numbers(self.theirs) else [])]
        return [*found, *self._of_lines(EVALUATIONS), *self._of_checkpoints()]

    def counts(self) -> str:
        """What was compared."""
        return f"{self._lines} lines of logs and {self._checkpoints} checkpoint{'s' * (self._checkpoints != 1)}"

    def other_versions(self) -> str:
        """`torch 2.6 and 2.15 here` for each library of another version than the run's."""
        versions = self._records[0].get("versions")
        own = self._records[1].get("versions")
        if not isinstance(versions, dict) or not isinstance(own, dict):
            return "unknown ones"
        other = [key for key in own if own[key] != versions.get(key)]
        return ", ".join(f"{key} {versions.get(key)} and {own[key]} here" for key in other)

    def not_judged(self) -> str:
        """Why a difference is no evidence against the run; empty if it is."""
        theirs, ours = (record.get("device") for record in self._records)
        trainer = self._records[0]["config"].get("trainer")
        if other := self.other_versions():
            return f"was trained with other versions: {other}"
        if theirs is not None and theirs != ours:
            return f"was trained on another device: {theirs}, and {ours} here"
        if ours != "cpu" and not (isinstance(trainer, dict) and trainer.get("deterministic")):
            return f"{ours} adds in an order that changes from run to run without trainer.deterministic=true"
        return ""

    def _of_lines(self, name: str) -> list[str]:
        """The first line up to the step that differs, or another number of them.

        `evaluate` may have added lines to the run's evaluations since, or before the run was given more steps; a
        repetition that was stopped at the step may lack its last ones.
        """
        try:
            theirs, ours = (_lines(folder / name, self.step) for folder in (self.theirs, self.ours))
        except NotInside as error:
            return [str(error)]
        if name == EVALUATIONS:
            theirs = _without_added(theirs, ours)
        for i, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            if one != other:
                return [f"{name}, line {i + 1}: {_short(one)}, and {_short(other)} here"]
        # Whether the repetition has ended at the step, as the run has, or had before it was given more steps.
        ended = self.step == self._records[1]["config"].get("max_steps")
        if ended and len(theirs) != len(ours):
            return [f"{name}: {len(theirs)} lines up to step {self.step}, and {len(ours)} here"]
        self._lines += min(len(theirs), len(ours))
        return []

    def _of_checkpoints(self) -> list[str]:
        """Damaged files of the run, and those of a step that the repetition has as well and that differ."""
        from diffusion_lab.testing import same
        from diffusion_lab.training.checkpoint_io import load

        faults = []
        ours = {path.name: path for path in (self.ours / CHECKPOINTS).glob(f"*{CHECKPOINT}")}
        for path in sorted((self.theirs / CHECKPOINTS).glob(f"*{CHECKPOINT}")):
            try:
                content = compared_state(load(path, "cpu", self.theirs, mapped=True))
            except Exception as error:  # a file from anybody
                faults.append(f"{path.name}: {' '.join(str(error).split())[:SHOWN]}")
                continue
            if path.name not in ours or path.name == PREVIOUS:
                continue
            own = compared_state(load(ours[path.name], "cpu", mapped=True))
            if own["step"] == content["step"]:
                self._checkpoints += 1
                differ = [key for key in own if not same(own[key], content[key])]
                faults += [f"{path.name}: other {', '.join(differ)}"] if differ else []
        return faults


def compared_state(content: dict[str, Any]) -> dict[str, Any]:
    """What must be equal in the checkpoints of a run and of its repetition."""
    callbacks = {key: value for key, value in content["callbacks"].items() if key not in CLOCKED}
    return {
        "step": content["global_step"],
        "weights": dict(content["state_dict"]),
        "optimizer": content["optimizer_states"],
        "state of callbacks": callbacks,
    }


def _lines(path: Path, step: int) -> list[str]:
    """The lines up to a step; one that cannot be read counts, because it is not what a run writes."""
    try:
        lines = read_inside(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if not (_step(line) > step)]


def _without_added(theirs: list[str], ours: list[str]) -> list[str]:
    """Their lines without those that `evaluate` added: lines between which, and after which, ours go on in order."""
    kept, start = [], 0
    for line in ours:
        found = next((i for i in range(start, len(theirs)) if theirs[i] == line), None)
        if found is None:  # it was changed or removed
            return kept + theirs[start:]
        kept.append(line)
        start = found + 1
    return kept


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return 0.0


def _short(line: str) -> str:
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}.."
