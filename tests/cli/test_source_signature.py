"""Signatures read from source are those that Python finds after an import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from diffusion_lab.cli.checks.annotations import UNREAD, described, fits, in_words
from diffusion_lab.cli.checks.source_signature import source_signature
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.targets import Trust, resolve

PROBES = [None, True, 3, 1.5, "word", "", [], [1], [1.0, 2.0], ["word"], [True], [1, 2, 3], [[1]], "none"]


def targets(content: Any) -> set[str]:
    """Every `_target_` below a value of a yaml file."""
    if isinstance(content, dict):
        own = {content["_target_"]} if isinstance(content.get("_target_"), str) else set()
        return own.union(*map(targets, content.values()))
    return set().union(*map(targets, content)) if isinstance(content, list) else set()


SHIPPED = sorted(
    {
        one
        for path in conf_dir().rglob("*.yaml")
        for one in targets(yaml.safe_load(path.read_text()))
        if not one.startswith(("hydra", "diffusion_lab.cli."))
    }
)


@pytest.mark.parametrize("target", SHIPPED)
def test_the_signature_is_that_of_the_imported_class(target: str) -> None:
    try:
        real = described(resolve("part", target, Trust()))
    except Exception:
        pytest.skip("not a part of a configuration of train")
    found = source_signature(target)
    if list(real.parameters) == ["args", "kwargs"]:  # the constructor of torch.nn.Module
        assert found is None
        return
    assert found is not None
    assert list(found.parameters) == [name for name, one in real.parameters.items() if one.kind is not one.VAR_KEYWORD]
    assert found.needed == real.needed and found.open_ended == real.open_ended
    for name, hint in found.hints.items():
        assert in_words(hint) == in_words(real.hints[name]), name
        assert [fits(one, hint) for one in PROBES] == [fits(one, real.hints[name]) for one in PROBES], name
    for name, one in found.parameters.items():
        assert one.default is UNREAD or one.default == real.parameters[name].default, name


def test_most_arguments_are_decided() -> None:
    found = [one for target in SHIPPED if (one := source_signature(target)) is not None]
    arguments = sum(len(one.parameters) for one in found)
    assert len(found) > 0.9 * len(SHIPPED)
    assert sum(len(one.hints) for one in found) > 0.9 * arguments


def test_what_the_source_does_not_say_is_left_undecided(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from elsewhere import Alias, Base\nfrom dataclasses import dataclass\nNumber = int | float\nSIZE = 3 * 7\n"
        "raise SystemExit('imported')\n"
        "class A:\n    def __init__(self, a: Number, b: 'Alias | int', c: int = SIZE, *, d: 'list[str]', **more): ...\n"
        "class B(Base): ...\n"
        "@dataclass\nclass C:\n    x: int\n"
        "def make(x: int = 2) -> A: ...\n"
    )
    one = source_signature("mine.A", (tmp_path,))
    assert one is not None and one.needed == ["a", "b", "d"] and one.open_ended
    assert set(one.hints) == {"a", "c", "d"} and one.parameters["c"].default is UNREAD
    assert not fits("x", one.hints["a"]) and fits(1.5, one.hints["a"]) and not fits([1], one.hints["d"])
    assert source_signature("mine.B", (tmp_path,)) is None and source_signature("mine.C", (tmp_path,)) is None
    function = source_signature("mine.make", (tmp_path,))
    assert function is not None and function.parameters["x"].default == 2
    assert source_signature("mine.A") is None and source_signature("os.system", (tmp_path,)) is None


FAULTS = [
    (["max_steps=abc"], "max_steps=abc must be an integer >= 0; use a number such as 2000"),
    (["optimizer.lr=abc"], "optimizer.lr=abc must be a number; use 0.001, the default"),
    (["sampler=logit_normal", "sampler.std=x"], "sampler.std=x must be a number; use 1.0, the default"),
    (["+network.depht=3"], "network.depht=3: UNet has no argument depht"),
    (["trainer.devices=[]", "trainer.benchmark=3"], "trainer.benchmark=3 must be true or false or null"),
]


@pytest.mark.parametrize(("words", "said"), FAULTS)
def test_a_wrong_argument_is_reported_before_torch_is_imported(words: list[str], said: str, in_folder: Path) -> None:
    code = (
        "import sys\nfrom diffusion_lab.cli.main import main\n"
        f"code = main(['train', *{words}])\nassert not {{'torch', 'lightning', 'numpy'}} & set(sys.modules)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2 and f"config error: {said}" in done.stderr, done.stderr
    assert not list(in_folder.glob("runs/*"))
