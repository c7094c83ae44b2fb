"""What is different between what is stored and what the code does now.

Names and hashes are compared always: they are text that a machine does not change.

Bits of a training are compared where every fact of `runs.machine` is the stored one: library versions, the instructions
and the model of the processor, threads. Elsewhere sums are added in another order, so numbers are compared instead:
the 2-norm and a projection of each part, and every number of metrics.jsonl, within TOLERANCE. A test on such a machine
ends as skipped and says so, after that comparison has passed.

TOLERANCE was chosen from the same twelve trainings with PyTorch's, oneDNN's and MKL's plainest instructions
(`ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2`): all twelve differ in bits; in
numbers eleven by less than 1e-7 and the learned Beta by less than 1e-5. Another seed lies outside five times TOLERANCE.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from diffusion_lab.files import write_whole
from diffusion_lab.runs.identity import leaves

RUNS_FILE = Path(__file__).with_name("runs.json")
COMPOSITIONS_FILE = Path(__file__).with_name("compositions.json")
IDENTITY = ("name", "config_hash", "group_hash")
TOLERANCE = 1e-4  # relative


def stored(path: Path) -> dict[str, Any]:
    """The content of one of the two files; empty before it is written for the first time."""
    return json.loads(path.read_text()) if path.exists() else {}


def other_facts(then: dict[str, str], now: dict[str, str]) -> list[str]:
    """`key now, stored with then` of each fact of a machine that is not the stored one."""
    return [f"{key} {now.get(key)}, stored with {then.get(key)}" for key in then if then[key] != now.get(key)]


def identities(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which of name, config hash and group hash differ."""
    return [f"{key}: {then[key]} -> {now[key]}" for key in IDENTITY if then[key] != now[key]]


def bits(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Which parts differ in a bit. What a part or a line of metrics.jsonl has in addition is no difference."""
    parts = [key for key, part in then["parts"].items() if part["sha256"] != now["parts"].get(key, {}).get("sha256")]
    return parts + _lines(then["metrics"], now["metrics"], 0.0)


def numbers(then: dict[str, Any], now: dict[str, Any], tolerance: float = TOLERANCE) -> list[str]:
    """Which parts and numbers of metrics.jsonl differ by more than `tolerance`."""
    found = []
    for key, part in then["parts"].items():
        count, norm, projection = part["numbers"]
        other = now["parts"].get(key, {"numbers": [0, 0.0, 0.0]})["numbers"]
        allowed = tolerance * norm
        if count != other[0] or abs(norm - other[1]) > allowed or abs(projection - other[2]) > allowed:
            found.append(f"{key}: {part['numbers']} -> {other}")
    return found + _lines(then["metrics"], now["metrics"], tolerance)


def _lines(then: list[dict[str, Any]], now: list[dict[str, Any]], tolerance: float) -> list[str]:
    """`step 4, train/loss: 1 -> 2` for each stored number that differs."""
    found = [f"metrics.jsonl: {len(then)} -> {len(now)} lines"] if len(then) != len(now) else []
    for old, new in zip(then, now, strict=False):
        for key, value in leaves(old).items():
            a, b = (x if isinstance(x, list) else [x] for x in (value, leaves(new).get(key)))
            if len(a) != len(b) or not all(map(_close, a, b, [tolerance * _size(a)] * len(a))):
                found.append(f"step {old['step']}, {key}: {value} -> {new.get(key)}")
    return found


def _size(values: list[Any]) -> float:
    """The largest absolute value of a list, against which each of its numbers is compared."""
    return max((abs(x) for x in values if isinstance(x, int | float)), default=0.0)


def _close(a: Any, b: Any, allowed: float) -> bool:
    both = isinstance(a, int | float) and isinstance(b, int | float)
    nothing = all(x is None or x != x for x in (a, b))  # null in a log that is JSON, NaN in one from before it was
    return a == b or nothing or (both and abs(a - b) <= allowed)


def write(path: Path, content: dict[str, Any]) -> None:
    """The file anew, with lists of numbers and texts on one line each, so that a change is seen in a diff."""
    text = json.dumps(content, indent=1)
    flat = re.sub(r"\[[^\[\]{}]*\]", lambda found: f"[{' '.join(found[0][1:-1].split())}]", text)
    write_whole(path, (flat + "\n").encode())
