"""The wheel, installed elsewhere, trains on digits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.test_readme import SMALL

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_trains_from_another_folder(tmp_path):
    site, wheels, elsewhere = tmp_path / "site", tmp_path / "wheels", tmp_path / "elsewhere"
    elsewhere.mkdir()
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)], tmp_path)
    (wheel,) = wheels.glob("diffusion_lab-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    run(install, tmp_path)
    # Before the editable installation on the path, as a fresh environment has it alone.
    environment = os.environ | {"PYTHONPATH": str(site)}
    where = run([sys.executable, "-c", "import diffusion_lab; print(diffusion_lab.__file__)"], elsewhere, environment)
    assert where.strip().startswith(str(site))
    assert (site / "diffusion_lab" / "py.typed").exists()
    command = [sys.executable, str(site / "bin" / "diffusion-lab")]
    assert "sampler" in run([*command, "train", "--help"], elsewhere, environment)
    run([*command, "train", *SMALL], elsewhere, environment)
    (folder,) = (elsewhere / "runs").glob("digits-logit_normal-v-min_snr-s0-*")
    assert '"status": "done"' in (folder / "result.json").read_text()


def run(command, cwd, environment=None):
    """Standard output; the command must succeed."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
