"""Facts that stand in two files of the project."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Modules whose distribution has another name, and those of the extras, which say how to install them.
OTHER_NAMES = {"yaml": "omegaconf", "PIL": "pillow", "sklearn": "scikit-learn", "hydra": "hydra-core"}
EXTRAS = {"timm", "diffusers", "safetensors", "datasets", "huggingface_hub", "skimage", "tensorboard", "torchvision"}
EXTRAS |= {"wandb_workspaces"}


def _foreign() -> set[str]:
    """Third-party modules that a file of the package imports, wherever in the file."""
    found = set()
    for path in (ROOT / "diffusion_lab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {name.name.split(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"diffusion_lab", "hydra_plugins"}


def test_ruff_before_a_commit_is_the_ruff_of_the_tests() -> None:
    (revision,) = re.findall(r"^    rev: v(\S+)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    assert f"\nruff=={revision}\n" in (ROOT / "constraints.txt").read_text()


def test_what_the_package_imports_is_declared() -> None:
    required = (ROOT / "pyproject.toml").read_text().split("\n[project.optional-dependencies]")[0]
    declared = set(re.findall(r'^  "([\w-]+)[><=]', required, re.MULTILINE))
    foreign = _foreign() - EXTRAS
    assert {"torch", "scipy"} <= foreign
    assert {OTHER_NAMES.get(name, name.replace("_", "-")) for name in foreign} <= declared
