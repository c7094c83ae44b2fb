"""Keys that an error names as its cure exist: somebody types them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose
from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.commands.evaluate import _features_of
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.config import register_resolvers
from diffusion_lab.cli.errors import ConfigError, config_errors
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.run_parts import part
from diffusion_lab.metrics import DINOv2Features, InceptionFeatures

ROOT = Path(__file__).parents[2]
CURE = re.compile(r"\b(?:use|set|with|add|give|or) \+?((?:[a-z_]\w*\.)+[a-z_]\w*)=")


def keys(node: Any, path: str) -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield f"{path}.{name}".lstrip(".")
            yield from keys(value, f"{path}.{name}".lstrip("."))


def known() -> set[str]:
    """Dotted keys of all yaml files, below the group of each."""
    found: set[str] = set()
    for file in conf_dir().rglob("*.yaml"):
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        place = "" if file.parent == conf_dir() else ".".join(file.parent.relative_to(conf_dir()).parts)
        whole = place.split(".")[0] in ("method", "experiment", "scale", "base", "debug", "task")
        found |= {*keys(content, "" if whole else place.removesuffix(".base"))}
    return found


def test_the_keys_of_cures_are_keys_of_the_configuration() -> None:
    there, missing = known(), []
    for file in [*(ROOT / "diffusion_lab").rglob("*.py"), *(ROOT / "hydra_plugins").rglob("*.py")]:
        text = re.sub(r'"\s*\n\s*f?"', "", file.read_text())  # sentences over several lines
        for match in CURE.finditer(text):
            begins = f'"{match[1]}=' in text  # the sentence is about this key, which somebody has typed
            if match[1] not in there and not begins:
                missing.append(f"{file.name}: {match[1]}")
    assert missing == []


def test_negative_control_a_key_that_does_not_exist_is_found() -> None:
    assert CURE.findall("must be there; use metrics.weights=FILE or trainer.devices=1") == [
        "metrics.weights",
        "trainer.devices",
    ]
    assert "metrics.weights" not in known() and {"trainer.devices", "dataset.features.weights"} <= known()


@pytest.mark.parametrize("extractor", [InceptionFeatures(), DINOv2Features()], ids=["inception", "dinov2"])
def test_evaluate_names_the_words_with_which_it_finds_the_weights(extractor: Any, tmp_path: Path, monkeypatch) -> None:
    """Of the run's own extractor: the option of `evaluate` and the key; typed together they reach the next error."""
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    trained: Any = SimpleNamespace(data=SimpleNamespace(features=extractor))
    with pytest.raises(ConfigError) as caught, config_errors(_features_of(evaluate(), trained)):
        extractor.check()
    option, key = str(caught.value).partition("=null")[0].split()
    assert (option, key) == (f"features={extractor.name}", "features.weights")
    (tmp_path / "fake.pth").write_bytes(b"no weights")
    cfg = evaluate(option, f"{key}={tmp_path}/fake.pth")
    assert _features_of(cfg, trained) == "features"
    with pytest.raises(ConfigError) as next_one, config_errors("features"):
        part(cfg, "features").check()
    assert str(next_one.value).startswith(f"features.weights={tmp_path}/fake.pth")


def evaluate(*words: str) -> DictConfig:
    register_resolvers()
    with initialized():
        return compose("evaluate", overrides=list(words))
