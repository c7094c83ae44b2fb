"""What Hydra writes into a run folder is written here, in less time and with the same bytes."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from diffusion_lab.cli.commands.train import git_revision, versions
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.output_folders import as_yaml


class Color(Enum):
    RED = 1


STRANGE = {
    "texts": ["1e-4", "yes", "on", "0x10", "1_000", "2026-11-28", "null", "", "a: b", "ä ö", "two\nlines", "${x}", "~"],
    "numbers": [1e-4, 1e16, float("inf"), -0.0, 3, True, None],
    "long": "word " * 60,
    "color": Color.RED,
    "nested": {"b": {}, "a": []},
}


@pytest.mark.parametrize("c", [True, False], ids=["libyaml", "without"])
def test_yaml_is_written_as_omegaconf_writes_it(c: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not c:
        monkeypatch.delattr(yaml, "CDumper", raising=False)
    for content in (OmegaConf.create(STRANGE), compose_train(["base=ddpm"], Path("runs/run"))):
        assert as_yaml(content) == OmegaConf.to_yaml(content)


def test_what_does_not_change_in_a_process_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "python" in versions() and (git_revision() or True)
    monkeypatch.setattr("subprocess.run", None)
    monkeypatch.setattr("importlib.metadata.version", None)
    assert git_revision() == git_revision() and "torch" in versions()
