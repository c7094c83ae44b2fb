"""The wheel, installed elsewhere, trains on digits, reports and exports; and what it says of itself."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import diffusion_lab
from tests.programs.test_readme import SMALL

ROOT = Path(__file__).parents[2]


@pytest.mark.pages
def test_the_wheel_trains_reports_and_exports_from_another_folder(tmp_path):
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
    assert "1 done" in run([*command, "report", "runs"], elsewhere, environment)
    assert (elsewhere / "runs" / "report.html").exists()
    run([*command, "export", f"run={folder}", "format=safetensors", "outdir=out"], elsewhere, environment)
    assert (elsewhere / "out" / "README.md").exists()


def test_metadata_and_citation_state_the_version_and_the_tested_pythons():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == diffusion_lab.__version__
    changes = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[:2] == ["Unreleased", f"{citation['version']} - {citation['date-released']}"]
    assert (ROOT / "tests" / "releases" / citation["version"] / "run.json").exists()
    assert citation["license"] == project["license"]
    named = [word.rpartition(" ")[2] for word in project["classifiers"] if ":: 3." in word]
    assert named == ["3.11", "3.12", "3.13"] and project["requires-python"] == f">={named[0]}"
    page = (ROOT / "docs" / "install.md").read_text()
    assert f"Python {named[0]}, {named[1]} or {named[2]}" in page
    for extra in project["optional-dependencies"]:
        assert f"`{extra}`" in page, extra


def run(command, cwd, environment=None):
    """Standard output; the command must succeed."""
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
