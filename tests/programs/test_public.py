"""The public names: a name that is removed or added by accident fails here, and all of them can be imported.

After an intended change, write the list again with `python -m tests.programs.test_public`, and name it in CHANGELOG.md.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import diffusion_lab

LISTED = Path(__file__).parent / "public_names.txt"


def names() -> Iterator[str]:
    yield from (f"diffusion_lab.{name}" for name in diffusion_lab.__all__)
    for package in diffusion_lab.PACKAGES:
        yield from (f"diffusion_lab.{package}.{name}" for name in import_module(f"diffusion_lab.{package}").__all__)


def test_no_public_name_came_or_went_by_accident() -> None:
    listed, there = set(LISTED.read_text().split()), set(names())
    assert not listed - there, "public names were removed"
    assert not there - listed, "public names were added: python -m tests.programs.test_public"


def test_every_name_is_there_at_its_first_use() -> None:
    for name in LISTED.read_text().split():
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name
    assert diffusion_lab.timesteps.Uniform(3).num_timesteps == 3
    assert set(diffusion_lab.__all__) <= set(dir(diffusion_lab))


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, diffusion_lab; print(sorted({'torch', 'hydra', 'lightning', 'numpy'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(diffusion_lab, "nothing")


if __name__ == "__main__":
    LISTED.write_text("\n".join(sorted(names())) + "\n")
