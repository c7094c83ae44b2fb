"""What is answered before training starts imports nothing heavy, and what is imported is not collected meanwhile."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from diffusion_lab.cli.imports import importing

HEAVY = ("torch", "lightning", "numpy", "sklearn", "matplotlib", "wandb", "PIL", "scipy")
CODE = """
import sys
{before}
from diffusion_lab.cli.main import main
code = main({arguments})
heavy = sorted(set({heavy}) & set(sys.modules))
sys.exit(f"heavy: {{heavy}}" if heavy else code)
"""
SLOW = pytest.mark.slow
COMPLETION = {"COMP_LINE": "diffusion-lab train sampler=s"}


def _run(folder: Path, arguments: list[str], before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    code = CODE.format(before=before, arguments=arguments, heavy=HEAVY)
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, env=environment)


@pytest.mark.parametrize(
    ("arguments", "code", "said", "variables"),
    [
        pytest.param(["--help"], 0, "usage: diffusion-lab", {}, marks=SLOW),
        pytest.param(["train", "--help"], 0, "usage: diffusion-lab train", {}, marks=SLOW),
        pytest.param(["train", "--cfg", "job"], 0, "max_steps: 2000", {}, marks=SLOW),
        (["train", "max_stepz=3"], 2, "did you mean 'max_steps'", {}),
        pytest.param(["train", "network=unet_tiy"], 2, "did you mean 'unet_tiny'", {}, marks=SLOW),
        pytest.param(["train", "~smapler"], 2, "did you mean 'sampler'", {}, marks=SLOW),
        (["-sc", "query=bash"], 0, "sampler=stratified", COMPLETION),
        pytest.param(["train", "-sc", "install=bash"], 0, "hydra_bash_completion", {}, marks=SLOW),
    ],
)
def test_an_answer_before_training_imports_nothing_heavy(
    tmp_path: Path, arguments: list[str], code: int, said: str, variables: dict[str, str]
) -> None:
    done = _run(tmp_path, arguments, **variables)
    assert "heavy" not in done.stderr
    assert done.returncode == code and said in done.stdout + done.stderr, done.stderr


def test_the_look_at_imports_finds_what_is_there(tmp_path: Path) -> None:
    done = _run(tmp_path, ["--help"], before="import numpy")
    assert done.returncode == 1 and done.stderr.strip() == "heavy: ['numpy']"


def test_nothing_is_collected_while_importing() -> None:
    assert gc.isenabled()
    with importing():
        assert not gc.isenabled()
        with importing():
            pass
        assert not gc.isenabled()  # it was off before
    assert gc.isenabled()
    with pytest.raises(KeyError), importing():
        raise KeyError
    assert gc.isenabled()
