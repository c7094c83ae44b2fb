"""run.json, what a run is; result.json, how it ended; sweep.json, the jobs of a sweep."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.files import object_in, read_object, write_json
from diffusion_lab.files_inside import NotInside
from diffusion_lab.held_folder import current
from diffusion_lab.intervals import CLAIM_SEEDS
from diffusion_lab.runs.lines import read_lines
from diffusion_lab.runs.names import EVALUATIONS, METRICS, RECORD, RESULT, SWEEP
from diffusion_lab.runs.signature import signed

NAMED = 3  # run folders in a sentence
ENDS = "ends"  # of run.json: steps at which the run had its end before it was given a larger max_steps

Kinds = Mapping[str, type | tuple[type, ...]]

# Types of the entries, which may also be null: a damaged file is reported, and the other runs are still used.
RECORD_KINDS: Kinds = {
    **dict.fromkeys(("config", "versions", "bins", "dataset", "data", "own_parts"), dict),
    **dict.fromkeys(("method", "command", "group_hash", "config_hash", "started", "git", "device"), str),
    **{"overrides": list, "log_snr": list, ENDS: list, "seed": int, "parameters": int, "global_batch": (int, float)},
}
RESULT_KINDS: Kinds = {"status": str, "step": (int, float), "metrics": dict, "evaluations": list, "error": dict}


class _Result(NamedTuple):
    status: str  # done, failed, interrupted or pruned
    step: int = 0  # the last finished optimizer step
    metrics: Mapping[str, float | None] = {}  # the newest value of each scalar; None if it is not finite
    evaluations: list[dict[str, Any]] = []  # the newest lines of evaluations.jsonl
    error: dict[str, str] | None = None
    seconds: float | None = None  # training time, summed over resumes
    images_per_second: float | None = None  # since the last start


def read_record(folder: Path, key: str) -> dict[str, Any]:
    """The record of a run folder, which is untrusted input; its `config` is the run's configuration.

    Raises:
        FileNotFoundError: there is no run in the folder; `key` is the setting that named it.
        ValueError: the record is damaged.
    """
    try:
        record = object_in(folder / RECORD, folder)
        if not isinstance(record.get("config"), dict):
            raise ValueError("config must be an object")
    except (FileNotFoundError, NotADirectoryError) as error:
        known = sorted(str(path.parent) for path in folder.parent.glob(f"*/{RECORD}"))
        more = f" and {len(known) - NAMED} more" if len(known) > NAMED else ""
        hint = f"; runs there: {', '.join(known[:NAMED])}{more}" if known else "; `diffusion-lab report DIR` lists runs"
        raise FileNotFoundError(f"{key}={folder} must be the folder of a run, with a {RECORD} in it{hint}") from error
    except PermissionError as error:
        raise ValueError(
            f"{key}={folder} must hold a {RECORD} that can be read ({error}); change its permissions"
        ) from error
    except (OSError, ValueError) as error:
        cure = "restore a copy, or remove it and train again"
        raise ValueError(f"{key}={folder} must hold an undamaged {RECORD} ({error}); {cure}") from error
    return record


def write_record(folder: Path, record: Mapping[str, Any], own: bool) -> None:
    """Write the record of a run, of plain values; with the user's signature (`signature`) if all that it names is the
    user's `own`."""
    write_json(folder / RECORD, signed(record) if own else record, infinity="1e999")  # a setting may be infinite


def read_checked(path: Path, kinds: Kinds, top: Path | None = None) -> tuple[dict[str, Any], list[str]]:
    """The object in a file below `top`, {} if there is no file, without its entries of a wrong type, and a sentence
    about each of these."""
    try:
        content = object_in(path, top)
    except (FileNotFoundError, NotADirectoryError):
        return {}, []
    except NotInside as error:
        return {}, [str(error)]
    except (OSError, ValueError):
        return {}, [f"{path.name} is not a JSON object"]
    there = {key: content[key] for key in kinds if content.get(key) is not None}
    wrong = [key for key, value in there.items() if isinstance(value, bool) or not isinstance(value, kinds[key])]
    faults = [f"{path.name} has {key}={_shown(content[key])}, which must be {_words(kinds[key])}" for key in wrong]
    return {key: value for key, value in content.items() if key not in wrong}, faults


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _words(kind: type | tuple[type, ...]) -> str:
    words = {dict: "an object", list: "a list", str: "text", int: "an integer", float: "a number"}
    return words[kind[-1] if isinstance(kind, tuple) else kind]


def read_result(folder: Path) -> dict[str, Any]:
    """How a run ended; {} if there is no result or it is damaged."""
    return read_object(folder / RESULT) or {}


def is_done(result: Mapping[str, Any], max_steps: int = 0) -> bool:
    """Whether the run of this result is done, at `max_steps` or beyond."""
    step = result.get("step") or 0
    return result.get("status") == "done" and isinstance(step, int | float) and step >= max_steps


def is_pruned(result: Mapping[str, Any]) -> bool:
    """Whether the run of this result was ended early, because most runs of its sweep were better."""
    return result.get("status") == "pruned"


def result_stamp(folder: Path) -> tuple[int, int] | None:
    """A value that changes when the result is replaced; None without a result."""
    with suppress(OSError):
        status = (folder / RESULT).stat()
        return status.st_ino, status.st_mtime_ns
    return None


def write_result(folder: Path, status: str, step: int, exception: BaseException | None = None, **cost: float) -> None:
    """Write the result of a run that ends: the newest metrics of its line files, the exception that ended it, and
    `seconds` and `images_per_second` if they are known."""
    folder, metrics = current(folder), dict[str, float | None]()
    for line in read_lines(folder / METRICS):
        numbers = {key: value for key, value in line.items() if value is None or isinstance(value, float)}
        metrics |= {key: value for key, value in numbers.items() if key.startswith(("metrics/", "val/"))}
    evaluations = read_lines(folder / EVALUATIONS)
    last = max((line["step"] for line in evaluations), default=0)
    error = None
    if exception is not None:
        error = as_error(type(exception).__name__, str(exception), "".join(traceback.format_exception(exception)))
    newest = [line for line in evaluations if line["step"] == last]
    write_json(folder / RESULT, _Result(status, step, metrics, newest, error, **cost)._asdict())


def write_failure(folder: Path, error: dict[str, str]) -> None:
    """Write the result of a run that could not do so itself, with the numbers of its last result. An OSError is
    ignored, because a full disk may be why the run failed."""
    old = {key: value for key, value in read_result(folder).items() if key in _Result._fields}
    with suppress(OSError):
        write_json(folder / RESULT, _Result("failed")._asdict() | old | {"status": "failed", "error": error})


def as_error(kind: str, message: str, trace: str = "") -> dict[str, str]:
    """The error of a result: the exception's class, message and traceback."""
    return {"type": kind, "message": message, "traceback": trace}


def read_sweep(folder: Path, top: Path | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    """The commands of a sweep folder, oldest first, and its jobs {"dir", "overrides", "config_hash"}, started or not;
    damaged entries are left out. `top` is the folder that the user named, by default `folder`."""
    content = read_object(folder / SWEEP, top) or {}
    commands = as_list(content.get("commands"))
    jobs = [job for job in as_list(content.get("jobs")) if isinstance(job, dict) and job.get("dir")]
    return list(map(str, commands)), jobs


def read_question(folder: Path, top: Path | None = None) -> dict[str, Any]:
    """What the runs of a sweep folder are to decide, {"metric", "estimand", "margin", ..}; {} if it is not recorded."""
    found = (read_object(folder / SWEEP, top) or {}).get("question")
    return found if isinstance(found, dict) else {}


def is_claim(question: Mapping[str, Any]) -> bool:
    """Whether a recorded question is that of a race, or for so many seeds that they decide something."""
    few = isinstance(question.get("seeds"), int) and question["seeds"] < CLAIM_SEEDS
    return bool(question) and (question.get("stopping") == "race" or not few)


def write_sweep(
    folder: Path, command: str, jobs: list[dict[str, Any]], question: dict[str, Any] | None = None
) -> dict[str, Any] | None:
    """Add a command and its jobs to those of the sweep folder; a job with the same folder is replaced.

    Returns:
        The question of the sweep, which is that of its first command that had one. Fewer than 3 seeds decide nothing,
        so they were a trial, and a later command states the number: its own, or that of all jobs if it is larger; and
        it may be a race, whose number is its own.
    """
    commands, old = read_sweep(folder)
    every = [job for job in old if job["dir"] not in {new["dir"] for new in jobs}] + jobs
    stated = read_question(folder)
    if stated and question and not is_claim(stated):
        seeds = {word for job in every for word in as_list(job.get("overrides")) if str(word).startswith("seed=")}
        race = question.get("stopping") == "race"
        asked = question if race or not stated.get("metric") else stated
        stated = asked | {"seeds": question["seeds"] if race else max(question["seeds"], len(seeds))}
    question = stated or question
    content = {"name": folder.name, "commands": list(dict.fromkeys([*commands, command]))}
    write_json(folder / SWEEP, content | ({"question": question} if question else {}) | {"jobs": every})
    return question


def as_list(value: Any) -> list[Any]:
    """`value` without nulls if it is a list, else []."""
    return [entry for entry in value if entry is not None] if isinstance(value, list) else []
