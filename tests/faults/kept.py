"""Results that are kept on disk, so that an interrupted campaign continues."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.faults.case import Case, Outcome

ROOT = Path(__file__).resolve().parents[2]
CODE = ("diffusion_lab", "hydra_plugins", "conf", "tests/faults", "tests/harness.py")


def fingerprint() -> str:
    """SHA-256 of the code that affects the results, 16 hex digits."""
    digest = hashlib.sha256()
    for path in sorted(_files()):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files() -> Iterable[Path]:
    for name in CODE:
        path = ROOT / name
        yield from [path] if path.is_file() else [p for p in path.rglob("*") if p.suffix in (".py", ".yaml")]


class Kept:
    """Outcomes of one part, a line each in `path`; those of other code are discarded.

    Args:
        path: the file.
        code: `fingerprint()` of the current code.
    """

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self.outcomes: dict[str, Outcome] = {}
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            with suppress(ValueError):  # half a line
                entry = json.loads(line)
                if entry["code"] == code:
                    self.outcomes[entry["case"]] = Outcome(**entry["outcome"])
        if lines and not self.outcomes:
            path.unlink()

    def forget(self) -> None:
        """Start anew."""
        self.outcomes = {}
        self.path.unlink(missing_ok=True)

    def add(self, case: Case, outcome: Outcome) -> None:
        """Keep the outcome of a case."""
        self.outcomes[case.name] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"code": self.code, "case": case.name, "outcome": outcome.plain()}) + "\n")
