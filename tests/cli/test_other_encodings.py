"""Text files as editors on Windows write them: a byte order mark, CRLF, another encoding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from diffusion_lab import train
from diffusion_lab.cli.definitions import _tree
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.main import main
from diffusion_lab.cli.own_yaml import _files
from diffusion_lab.data.sources.celeba import read_partition
from diffusion_lab.distribution_file import read_distribution
from diffusion_lab.timesteps.slots import _of_ranges
from hydra_plugins.diffusion_lab_sweeper.listed import ListedSweeper

MARK = b"\xef\xbb\xbf"
OWN = "# @package sampler\n_target_: diffusion_lab.timesteps.LogitNormal\nnum_timesteps: 10\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (MARK + OWN.encode(), "has a byte order mark"),
        (OWN.encode("utf-16"), "has another encoding"),
        ("# f\u00fcr\n".encode("latin-1") + OWN.encode(), "has another encoding"),
    ],
)
@pytest.mark.parametrize("command", ["train", "sample", "list", "reproduce"])
def test_a_yaml_that_hydra_would_misread_is_refused(
    command: str, content: bytes, reason: str, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_folder / "my" / "sampler").mkdir(parents=True)
    (in_folder / "my" / "sampler" / "own.yaml").write_bytes(content)
    assert main([command, "--config-dir", "my", "sampler=own"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Traceback" not in said
    assert f"config error: my/sampler/own.yaml must be UTF-8 without a byte order mark, and {reason}; save it" in said
    with pytest.raises(ConfigError, match=reason):
        train("--config-dir", "my", "sampler=own")


def test_only_groups_are_looked_at(in_folder: Path) -> None:
    for place in ("photos/a", "mine", "sampler"):
        (in_folder / place).mkdir(parents=True)
        (in_folder / place / "x.yaml").write_bytes(MARK + b"a: 1\n")
    words = ["--config-dir", ".", "+mine=x"]
    assert [str(path) for path in _files(words)] == ["mine/x.yaml", "sampler/x.yaml"]
    assert [str(path) for path in _files(words[:2])] == ["sampler/x.yaml"]


def test_lines_may_end_as_on_windows(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (in_folder / "my" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nseed: 7\n".replace("\n", "\r\n")
    (in_folder / "my" / "experiment" / "own.yaml").write_bytes(text.encode())
    assert main(["train", "--config-dir", "my", "experiment=own", "--cfg", "job", "--package", "seed"]) == 0
    assert capsys.readouterr().out.split()[-1] == "7"


READERS: dict[str, tuple[str, Callable[[Path], object], object]] = {
    "a distribution": ("# p\n0.25\n0.75\n", read_distribution, [0.25, 0.75]),
    "a partition": ("1.jpg 0\n2.jpg 2\n", read_partition, {"1.jpg": "0", "2.jpg": "2"}),
    "losses": (json.dumps([1.0, 2.0]), lambda path: _of_ranges(str(path)).tolist(), [1.0, 2.0]),
    "jobs": ("seed=0\nseed=1\n", lambda path: ListedSweeper(str(path)).jobs, [["seed=0"], ["seed=1"]]),
    "a module": ("x = 1\n", lambda path: len(_tree(path).body), 1),
}


def test_a_comment_of_jobs_begins_a_word(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("# it's a comment\nname=run#2 seed=1 # the second\n")
    assert ListedSweeper(str(tmp_path / "jobs")).jobs == [["name=run#2", "seed=1"]]


def test_a_line_of_jobs_that_is_no_shells_is_named(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("seed=0\n\nname=it's seed=1\n")
    with pytest.raises(ConfigError, match="jobs must have words of a shell on line 3 .No closing quotation.; quote"):
        ListedSweeper(str(tmp_path / "jobs"))


@pytest.mark.parametrize("mark", [b"", MARK], ids=["plain", "mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", READERS)
def test_other_texts_are_read_with_a_mark_and_either_end_of_line(
    name: str, end: str, mark: bytes, tmp_path: Path
) -> None:
    text, reader, value = READERS[name]
    path = tmp_path / "file"
    path.write_bytes(mark + text.replace("\n", end).encode())
    assert reader(path) == value
