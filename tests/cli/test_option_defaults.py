"""The entries of defaults lists, as the readers of options take them."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from omegaconf import OmegaConf

from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.options.defaults import DefaultsEntry, defaults, stated
from tests.frontier.test_methods import METHODS

LISTED = """defaults:
  - _self_
  - above
  - /method/speed
  - spacing: uniform
  - /sampler@base: logit_normal
  - averaging: null
  - override /schedule: cosine
  - override hydra/launcher: diffusion_lab
key: 1
"""


def test_every_form_of_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(LISTED)
    assert defaults(path) == (
        DefaultsEntry("above"),
        DefaultsEntry("method/speed", from_top=True),
        DefaultsEntry("spacing", "uniform"),
        DefaultsEntry("sampler", "logit_normal", "base", from_top=True),
        DefaultsEntry("averaging", ""),
        DefaultsEntry("schedule", "cosine", overrides=True, from_top=True),
        DefaultsEntry("hydra/launcher", "diffusion_lab", overrides=True),
    )
    path.write_text("key: 1\n")
    os.utime(path, ns=(1, 1))
    assert defaults(path) == ()


def test_every_entry_of_the_package_is_read() -> None:
    for path in conf_dir().rglob("*.yaml"):
        _, found, after = path.read_text().partition("\ndefaults:\n")
        listed = [
            line for line in itertools.takewhile(lambda line: line[:1] in " -", after.splitlines()) if "- " in line
        ]
        assert not found or len(defaults(path)) == sum("_self_" not in line for line in listed), path


def test_parts_of_a_family_that_a_method_defines_itself_are_known() -> None:
    runtime = {"config_sources": [{"schema": "file", "path": str(METHODS)}]}
    hydras = [{"runtime": runtime | {"choices": {"method": method}}} for method in ("aligned", "bandit", None)]
    found = [stated(OmegaConf.create(hydra), "auxiliary") for hydra in hydras]
    assert found == [{"aligned"}, set(), set()]
