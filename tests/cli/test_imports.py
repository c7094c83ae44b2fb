"""What is answered before training starts imports nothing heavy, and what is imported is not collected meanwhile."""

from __future__ import annotations

import gc
import json
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
        pytest.param(["show", "sampler=unifrm"], 2, "did you mean 'uniform'", {}, marks=SLOW),
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


WRONG = [  # what words and run.json tell, with words of the sentence
    (["sample", "run=runs/nothing"], "run=runs/nothing must be the folder of a run"),
    (["sample", "run=runs/a", "seeds=0..7"], "seeds=0..7 must be numbers and ranges"),
    (["sample", "run=runs/a", "weights=emma"], "weights=emma must be ema, raw, or an average"),
    (["sample", "run=runs/a", "labels=[cats]"], "did you mean 'cat'?"),
    (["evaluate"], "run=null must be a run folder"),
    (["evaluate", "run=runs/a", "seeds=3"], "seeds=3 must be at least two different integers"),
    (["analyze", "run=runs/a"], "analysis=null must be one of batch_noise, consistency, "),
    (["analyze", "run=[runs/a,runs/b]", "analysis=per_timestep"], "run=runs/b must be the folder of a run"),
    (["export", "run=runs/a", "checkpoint=null"], "checkpoint=null must be text"),
]
SEVERAL = """
import contextlib, io, sys
from diffusion_lab.cli.main import main
for words, said in {table}:
    with contextlib.redirect_stderr(io.StringIO()) as told, contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    heavy = sorted(set({heavy}) & set(sys.modules))
    if heavy or code != 2 or said not in told.getvalue():
        sys.exit(f"{{words}}: heavy {{heavy}}, code {{code}}, {{told.getvalue()}}")
"""


def test_what_words_and_the_record_of_a_run_tell_is_checked_before_anything_heavy(tmp_path: Path) -> None:
    split = {"images": 3, "fingerprint": "0", "labels": "1"}
    data = {"name": "pets", "shape": [3, 8, 8], "train": split, "test": split, "classes": ["cat", "dog"]}
    (tmp_path / "runs" / "a").mkdir(parents=True)
    record = {"config": {"dataset": {"conditional": True}, "network": {}}, "data": data}
    (tmp_path / "runs" / "a" / "run.json").write_text(json.dumps(record))
    code = SEVERAL.format(table=WRONG, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


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
