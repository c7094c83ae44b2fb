"""`python -m tests.releases`: write the run of the present version."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import diffusion_lab
from diffusion_lab.cli.main import main
from tests.releases import HERE, WORDS

target = HERE / diffusion_lab.__version__
folder = Path(tempfile.gettempdir(), "release")  # a run records the place where it was trained
folder.mkdir()
os.chdir(folder)
try:
    if code := main(["train", *WORDS]):
        sys.exit(code)
    (run,) = Path("runs").iterdir()
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(run, target, ignore=shutil.ignore_patterns(".hydra", ".lock", "previous.ckpt"))
finally:
    shutil.rmtree(folder)
print(target)
