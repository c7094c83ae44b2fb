"""Studies that are fixed before their runs: the jobs of the first command of their pages may run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from diffusion_lab.cli.main import main
from experiments.cells import FOLDER
from tests.harness import Child

STUDIES = {
    "pairing": (48, "pairing_digits"),
    "small_batches": (30, "small_batches_digits"),
    "mixed": (185, "mixed_digits"),
}


def commands(study: str) -> list[list[str]]:
    """The words of each command of a page, as for seed 0 where it loops over seeds."""
    text = (FOLDER / study / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^ {4,}(?:diffusion-lab train -m --config-dir \S+|lab) ([^\"{}\n]*)$", text, re.MULTILINE)
    return [line.replace("$s", "0").replace("'", "").replace("optimizer.lr=..", "").split() for line in found]


@pytest.mark.exhaustive
@pytest.mark.parametrize("study", STUDIES)
def test_all_jobs_of_its_first_command_may_run(study: str, tmp_path: Path) -> None:
    jobs, preset = STUDIES[study]
    own = commands(study)[0]

    def work() -> None:
        os.chdir(tmp_path)
        named = [] if any(word.startswith("experiment=") for word in own) else [f"experiment={preset}"]
        line = ["train", "-m", "--config-dir", str(FOLDER / study), *named, *own, "dry_run=true"]
        raise SystemExit(main(line))

    child = Child(work, tmp_path / "log")
    assert child.wait(500) == 0, child.log.read_text()
    assert f"{jobs} jobs" in child.log.read_text()
