"""`python -m tests.golden`: write the stored trainings, names and hashes anew, and say what became different."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden import compare
from tests.golden.compositions import identity, key, on_base, rounds_to_store, table_identities, table_places, wanted
from tests.golden.runs import RUNS, machine, measure


def write_compositions() -> list[str]:
    """Compose everything (minutes), write the file, and name what changed, came and went."""
    before = compare.stored(compare.COMPOSITIONS_FILE)
    lists = wanted()
    stored = [words.split() for words in before.get("rounds", {})]
    lists["rounds"] = rounds_to_store(stored, lists["rounds"])
    as_composed = {"options": on_base}
    after = {
        kind: {key(words): identity(as_composed.get(kind, list)(words)) for words in found}
        for kind, found in lists.items()
    }
    after["tables"] = {job: found for place in table_places() for job, found in table_identities(place).items()}
    compare.write(compare.COMPOSITIONS_FILE, after)
    return [
        line
        for kind, found in after.items()
        for line in changes(before.get(kind, {}), found, lambda then, now: [f"{then} -> {now}"] if then != now else [])
    ]


def write_runs() -> list[str]:
    """Train everything (a minute), write the file, and name what changed, came and went."""
    before = compare.stored(compare.RUNS_FILE)
    with TemporaryDirectory() as folder:
        after = {name: measure(name, Path(folder) / name / "run") for name in RUNS}
    compare.write(compare.RUNS_FILE, {"machine": machine(), "runs": after})
    return compare.other_facts(before.get("machine", {}), machine()) + changes(before.get("runs", {}), after, _run)


def _run(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Identities, and numbers where they are far apart, else the parts of which a bit is another one."""
    return compare.identities(then, now) + (compare.numbers(then, now) or compare.bits(then, now))


def changes(before: dict[str, Any], after: dict[str, Any], differences: Any) -> list[str]:
    """A line for each entry that came, went or differs."""
    lines = [f"gone: {name}" for name in before if name not in after]
    lines += [f"new: {name}" for name in after if name not in before]
    both = [name for name in before if name in after]
    return lines + [f"{name or 'defaults'}: {what}" for name in both for what in differences(before[name], after[name])]


def main() -> int:
    """Write both files; what changed goes to standard output."""
    lines = write_compositions() + write_runs()
    print("\n".join(lines) or "nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
