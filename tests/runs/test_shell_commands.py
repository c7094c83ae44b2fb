"""Commands that are printed can be typed, whatever the folders are called."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

import diffusion_lab
from diffusion_lab.cli import help as help_text
from diffusion_lab.cli.commands import report
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.untrusted_run import resume_overrides
from diffusion_lab.data.latent.stored import read_header
from diffusion_lab.reports.pages.notes import next_command
from diffusion_lab.reports.pair.page import _command
from diffusion_lab.runs.shell_commands import command, setting
from hydra_plugins.diffusion_lab_launcher._screen import Screen

ODD = "it's [my] run, 50% \"a\" \\' \\"
SOURCES = [Path(diffusion_lab.__file__).parent, Path(diffusion_lab.__file__).parents[1] / "hydra_plugins"]
WORDS_OF_OPTIONS = ("text.py", "list.py")  # which print names of yaml files, not paths
COMMAND = re.compile(rf"diffusion-lab ({'|'.join(help_text.COMMANDS)}) [^`;]*$")


@pytest.mark.parametrize(
    "name", ["plain-1.2/x", "a b", "it's", ODD, "x\\", "x\\\\'", "1e5", "null", "a,b", "{}", "$x", "ä"]
)
def test_a_setting_is_read_back_by_the_shell_and_by_hydra(name: str) -> None:
    program, verb, word = shlex.split(command("sample", setting("run", name)))
    (read,) = OverridesParser.create().parse_overrides([word])
    assert (program, verb) == ("diffusion-lab", "sample")
    assert str(getattr(read.value(), "text", read.value())) == name


def _last(text: str, word: str) -> str:
    """What the printed command names: its last argument, as the shell reads it."""
    return shlex.split(text.rpartition(word)[1] + text.rpartition(word)[2])[-1]


def test_each_printed_command_names_the_folder_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder: Any = tmp_path / ODD
    place = SimpleNamespace(folder=folder, runs=[], newest="2026-01-01T00:00:00")
    assert _last(report._overview([place])[-1], "diffusion-lab") == str(folder)
    running = SimpleNamespace(path=folder, runs=[SimpleNamespace(status="running")])
    assert shlex.split(next_command(running, [], "fid")[0])[-1] == str(folder)
    done = SimpleNamespace(path=folder, runs=[])
    assert shlex.split(next_command(done, [], "fid")[0])[2] == str(folder)
    group: Any = SimpleNamespace(runs=[SimpleNamespace(folder=folder)])
    for text in (_command(group).strip("`"), _message(FileNotFoundError, lambda: read_header(folder))):
        words = [
            word for word in shlex.split(text[text.index("diffusion-lab") :]) if word.startswith(("run=", "outdir="))
        ]
        (read,) = OverridesParser.create().parse_overrides(words)
        assert str(getattr(read.value(), "text", read.value())) == str(folder)
    text = _message(ConfigError, lambda: resume_overrides(folder, ["dataset.source.root=/a b/c"], []))
    assert shlex.split(text.partition("repeat it: ")[2])[-1] == "dataset.source.root=/a b/c"
    screen = Screen.__new__(Screen)
    screen.folder, screen.words = folder, {}
    screen.summary([])
    assert _last(capsys.readouterr().out, "diffusion-lab") == str(folder)


def _message(kind: type[Exception], act: Any) -> str:
    with pytest.raises(kind) as error:
        act()
    return str(error.value)


def test_no_command_is_glued_together_from_a_path() -> None:
    glued = []
    for path in (file for root in SOURCES for file in root.rglob("*.py")):
        if path.name in WORDS_OF_OPTIONS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                for part, after in zip(node.values, node.values[1:], strict=False):
                    said = isinstance(part, ast.Constant) and COMMAND.search(str(part.value))
                    if said and isinstance(after, ast.FormattedValue):
                        glued.append(f"{path.name}:{node.lineno}")
    assert glued == []
