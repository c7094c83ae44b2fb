"""Atomic writes that follow nothing, and JSON that cannot hurt its reader; the temporary files of other writers."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diffusion_lab import files_inside
from diffusion_lab.files import DEPTH, parse, read_object, replacing, write_whole
from diffusion_lab.files_inside import NotInside, open_inside, read_inside, regular
from tests.limited import limited


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two" and [one.name for one in path.parent.iterdir()] == ["file"]
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.write(b"three")
        raise ZeroDivisionError
    assert path.read_bytes() == b"two" and [one.name for one in path.parent.iterdir()] == ["file"]
    umask = os.umask(0o22)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask  # like any other file: others may read a report


def test_the_temporary_name_cannot_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (names.append(a), real(a, b)))
    for _ in range(2):
        write_whole(tmp_path / "file", b"x")
    assert len(set(names)) == 2 and not any(str(os.getpid()) == name.name.rpartition(".")[2] for name in names)


def checkpoint(folder: Path) -> None:
    from diffusion_lab.training.checkpoint_io import save

    save({"global_step": 1}, folder / "last.ckpt")


def cut(folder: Path) -> None:
    from diffusion_lab.runs.lines import append_lines, cut_lines

    append_lines(folder / "metrics.jsonl", [{"step": 1}, {"step": 2}])
    cut_lines(folder / "metrics.jsonl", 1)


def linked(folder: Path) -> None:
    from diffusion_lab.callbacks.checkpoint import _link

    (folder / "last").write_bytes(b"x")
    _link(folder / "last", folder / "last.ckpt")


def copied(folder: Path) -> None:
    """On a file system without hard links."""
    from diffusion_lab.callbacks.checkpoint import _link

    def no_links(*_: object) -> None:
        raise OSError("there are none")

    (folder / "last").write_bytes(b"x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", no_links)
        _link(folder / "last", folder / "last.ckpt")
    assert (folder / "last.ckpt").read_bytes() == b"x"


def grid(folder: Path) -> None:
    import torch

    from diffusion_lab.metrics.pictures import save_grid

    save_grid(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), folder / "grid.png")


WRITERS = {
    "last.ckpt": checkpoint,
    "metrics.jsonl": cut,
    "last.ckpt ": linked,
    " last.ckpt": copied,
    "grid.png": grid,
}


@pytest.mark.parametrize("kind", ["link", "FIFO"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_prepared_temporary_file_is_not_written_through(name: str, kind: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"my own")
    folder = tmp_path / "folder"
    folder.mkdir()
    place = folder / f"{name.strip()}.partial"
    place.symlink_to(mine) if kind == "link" else os.mkfifo(place)
    with limited(5):
        WRITERS[name](folder)
    assert mine.read_bytes() == b"my own" and not (folder / name.strip()).is_symlink()
    assert (folder / name.strip()).is_file()


def test_a_stale_temporary_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.partial").write_bytes(b"half")
    with replacing(tmp_path / "file", "file.partial") as file:
        file.write(b"whole")
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("file", b"whole")]


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


KINDS: dict[str, Callable[[Path], object]] = {
    "is a link": device,
    "is a FIFO": os.mkfifo,
    "is a folder": Path.mkdir,
    "at most 1,000 bytes, and has 1,001": lambda path: path.write_bytes(bytes(1001)),
}


@pytest.mark.parametrize("reason", KINDS)
def test_only_regular_files_are_read(reason: str, tmp_path: Path) -> None:
    KINDS[reason](tmp_path / "file")
    with limited(5), pytest.raises(NotInside, match=f"^{tmp_path}/file must .*{reason}"):
        read_inside(tmp_path / "file", largest=1000)
    if "bytes" not in reason:
        for mode in ("ab", "wb", "rb"):
            with limited(5), pytest.raises((NotInside, IsADirectoryError)):
                open(tmp_path / "file", mode, opener=regular)


def test_links_are_followed_to_the_folder_and_not_below_it(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "a" / "b").mkdir(parents=True)
    (real / "a" / "b" / "file").write_bytes(b"x")
    (tmp_path / "top").symlink_to(real)
    top = tmp_path / "top"
    assert read_inside(top / "a" / "b" / "file", top) == b"x" == read_inside(top / "a" / "b" / "file")
    (real / "link").symlink_to(real / "a")
    (real / "circle").symlink_to("circle")
    for path in ("link/b/file", "circle", "circle/file", "a/../a/b/file", "../real/a/b/file", ""):
        with pytest.raises(NotInside):
            open_inside(top / path, top)
    for path in ("nothing", "a/nothing", "nothing/file"):
        with pytest.raises(FileNotFoundError):
            open_inside(top / path, top)


def test_a_file_that_is_exchanged_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a regular file when it was checked, and is a FIFO or a link when it is opened."""
    for kind, make in (("FIFO", os.mkfifo), ("link", device)):
        path = tmp_path / kind
        make(path)
        with monkeypatch.context() as patch:
            checks = iter([None])
            real = files_inside._check
            patch.setattr(files_inside, "_check", lambda *args, c=checks, r=real: next(c, 0) is None or r(*args))
            with limited(5), pytest.raises(NotInside):
                open_inside(path)


@pytest.mark.parametrize(
    "content",
    ["[" * 200_000, '{"a": ' * 200_000, "[" * 900 + "]" * 900, "[" * (DEPTH + 1) + "]" * (DEPTH + 1), "", "nul", "\0"],
)
def test_what_is_no_json_of_ours_is_a_value_error(content: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        parse(content)
    (tmp_path / "file").write_text(content)
    assert read_object(tmp_path / "file") is None


def test_numbers_and_depth_have_bounds() -> None:
    assert parse("[" * DEPTH + "]" * DEPTH)
    large = 2**63 - 1
    assert parse(f"[{large}, {-large}, {2 * large}]") == [large, -large, 2 * large]
    assert parse("1" + "0" * 400) == float("inf") and parse("-1" + "0" * 5000) == -float("inf")
    assert parse("1" + "0" * 30) == 1e30 and isinstance(parse("1" + "0" * 30), float)
    wide = json.dumps([[k] for k in range(1000)])
    assert parse(wide) == json.loads(wide)
    assert np.isnan(parse('{"a": NaN}')["a"])
