"""Yaml files are read by LibYAML as OmegaConf reads them with PyYAML's own parser."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf, _utils

from diffusion_lab.cli.conf_folder import conf_dir, read_by_libyaml

TRICKY = [
    "a: 1e-3\nb: 1_000\nc: on\nd: 2026-11-28\ne: .inf\nf: 0x10\ng: 1:30\n",
    "text: 'Fréchet \u2028 x'\nlist: [a, {b: c}]\nempty:\nnull: ~\nquoted: \"\\t\"\n",
    "- 1\n- &x {a: b}\n- *x\n",
    "block: |\n  one\n  two\nfolded: >\n  one\n  two\n",
    "",
]
WRONG = ["a: 1\na: 2\n", "a: [1\n", "a: b: c\n", "\ta: 1\n", "a: 'x\n", "!!python/object/apply:os.getcwd []\n"]


@pytest.fixture(scope="module")
def usual() -> type:
    """OmegaConf's loader as it is made without `read_by_libyaml`: on PyYAML's own parser."""
    module = type(_utils)("omegaconf._utils")
    module.__dict__.update(vars(_utils))
    path = Path(_utils.__file__)
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)  # its own code, again
    return module.get_yaml_loader()


def test_every_file_of_the_package_has_the_same_content(usual: type) -> None:
    assert issubclass(_utils.get_yaml_loader(), yaml.CSafeLoader) and not issubclass(usual, yaml.CSafeLoader)
    assert issubclass(yaml.SafeLoader, yaml.reader.Reader)  # others read as before
    files = sorted(conf_dir().glob("**/*.yaml"))
    assert len(files) > 300
    for path in files:
        assert OmegaConf.load(path) == OmegaConf.create(yaml.load(path.read_text(), Loader=usual) or {}), path


@pytest.mark.parametrize("text", TRICKY)
def test_what_is_easily_read_otherwise_is_read_alike(usual: type, text: str) -> None:
    found, known = (yaml.load(text, Loader=loader) for loader in (_utils.get_yaml_loader(), usual))
    assert repr(found) == repr(known)


@pytest.mark.parametrize("text", WRONG)
def test_what_is_refused_is_refused_at_the_same_place(usual: type, text: str) -> None:
    lines = []
    for loader in (_utils.get_yaml_loader(), usual):
        with pytest.raises(yaml.YAMLError) as found:
            yaml.load(text, Loader=loader)
        lines.append(found.value.problem_mark.line)
    assert lines[0] == lines[1]


def test_a_second_call_changes_nothing() -> None:
    loader = _utils.get_yaml_loader()
    read_by_libyaml()
    assert _utils.get_yaml_loader() is loader
