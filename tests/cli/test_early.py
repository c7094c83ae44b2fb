"""Checks before torch is imported: a node that the package's own yaml file has as it is needs none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.checks import early
from diffusion_lab.cli.checks.annotations import argument_faults
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.checks.source_signature import source_signature
from diffusion_lab.cli.conf_folder import conf_dir, yaml_file
from tests.cli.conftest import Compose


def nodes(content: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    found = [(path, content)] if isinstance(content, dict) and "_target_" in content else []
    below = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return found + [one for key, value in below for one in nodes(value, f"{path}.{key}")]


FILES = sorted(path for group in part_groups() for path in (conf_dir() / group).rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: str(path.relative_to(conf_dir())))
def test_no_yaml_file_of_the_package_has_a_wrong_argument(file: Path) -> None:
    """What lets `check_arguments` skip them; arguments that a defaults list adds are checked where it is composed."""
    content = yaml_file(file)
    added, _ = content.pop("defaults", None), content.pop("names", None)  # metrics.names becomes parts before the check
    for path, node in nodes(content, file.stem):
        signature = source_signature(node["_target_"])
        faults = argument_faults(node, path, signature) if signature is not None else []
        missing = [fault for fault in faults if " is missing, and " in fault]
        assert faults == missing and (not missing or added), faults


def test_only_nodes_that_differ_are_read(composed: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(early, "_faults", lambda path, *_: read.append(path) or [])
    early.check_arguments(composed("sampler=uniform"))
    assert "sampler" not in read
    early.check_arguments(composed("sampler=uniform", "+sampler.stretch=2"))
    assert "sampler" in read
