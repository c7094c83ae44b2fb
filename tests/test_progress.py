"""Progress as bars on a terminal and as lines elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from diffusion_lab import progress as module
from diffusion_lab.progress import duration, progress, waiting
from tests.terminal import on_a_terminal


def test_short_work_prints_nothing_and_long_work_a_line_now_and_then(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with progress("sampling", 100, "images") as task:
        for _ in range(10):
            now += 5.0
            task.advance(10)
    assert capsys.readouterr().out.splitlines() == [
        "sampling 30/100 images  time 15 s  eta 35 s",
        "sampling 60/100 images  time 30 s  eta 20 s",
        "sampling 90/100 images  time 45 s  eta 5.0 s",
    ]


def test_what_was_done_before_says_nothing_of_the_speed(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    with progress("pieces", 100, done=40) as task:
        task.skip(40)
        now = 20.0
        task.advance(10)
    assert capsys.readouterr().out == "pieces 90/100  time 20 s  eta 20 s\n"


def test_nothing_is_shown_where_it_is_not_wanted(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY", 0.0)
    with progress("sampling", 2, show=False) as task:
        task.advance()
    assert capsys.readouterr() == ("", "")
    with progress("sampling", 2) as task:
        task.advance()
    assert "sampling 1/2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0, "0 s"), (0.04, "0 s"), (2.34, "2.3 s"), (9.96, "10 s"), (41.2, "41 s"), (59.6, "1 min 00 s")),
        *((725, "12 min 05 s"), (7500, "2 h 05 min"), (12000, "3 h 20 min"), (300000, "3.5 days"), (float("inf"), "?")),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


NESTED = """
import sys, time
from diffusion_lab.progress import progress
with progress("training", 3, "steps") as outer:
    for step in range(3):
        with progress("sampling", 2, "images") as inner:
            inner.advance()
            time.sleep(0.6)
            inner.advance()
        outer.at(step + 1, note="loss 0.5", rest=60.0)
        print("a line")
print("after", file=sys.stderr)
"""


def test_a_terminal_shows_the_inner_bar_below_the_outer_one_and_none_at_the_end() -> None:
    screen = on_a_terminal([sys.executable, "-c", NESTED], columns=80)
    assert "sampling" in screen.shown and "1/2 images" in screen.shown and "loss 0.5" in screen.shown
    assert "eta 1 min 00 s" in screen.shown and max(map(len, screen.last)) <= 80
    assert screen.last == ["a line", "a line", "a line", "after"]


def test_a_file_gets_lines_as_they_are() -> None:
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, env=os.environ)
    assert done.stdout == "a line\n" * 3 and done.stderr == "training 0/3 steps\nafter\n"


def test_a_wait_is_named_once_it_lasts_and_a_short_one_is_not(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())  # an earlier test may have left some, which may end
    with waiting("opening a file"):
        pass
    monkeypatch.setattr(module, "NAMED_AFTER", 0.0)
    with waiting("importing much"):
        time.sleep(0.05)
    with progress("sampling", 100, "images") as task:
        time.sleep(0.05)
        task.advance()
    assert capsys.readouterr() == ("", "importing much\nsampling 0/100 images\n")
    assert set(threading.enumerate()) <= before  # none that a fork could break


NAMED = """
import time
from diffusion_lab.progress import waiting
with waiting("importing much"):
    time.sleep(0.2)
print("done")
"""


def test_a_terminal_names_a_wait_at_once_and_keeps_nothing_of_it() -> None:
    screen = on_a_terminal([sys.executable, "-c", NAMED])
    assert screen.shown_at[0][1].startswith("importing much") and screen.last == ["done"]


def test_after_a_wait_inside_another_the_outer_one_is_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(module, "status", shown.append)
    with waiting("checking the jobs"), waiting("importing much"):
        pass
    assert shown == ["checking the jobs", "importing much", "checking the jobs", ""]


def test_in_a_file_the_outer_wait_is_named_again_after_an_inner_one_that_was(
    capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """24 s of checks stood under "importing Lightning", whose import had taken two."""
    monkeypatch.setattr(module, "NAMED_AFTER", 0.05)
    before = set(threading.enumerate())
    with waiting("checking the jobs"):
        time.sleep(0.15)
        with waiting("importing much"):
            time.sleep(0.15)
        time.sleep(0.15)
        with waiting("opening a file"):
            pass
        time.sleep(0.15)
    assert capsys.readouterr().err.splitlines() == ["checking the jobs", "importing much", "checking the jobs"]
    assert set(threading.enumerate()) <= before


HEAVY = """
import sys
import threading
import time
from diffusion_lab.cli.imports import importing
with importing():
    sys.modules["torch"] = sys.modules["lightning.pytorch"] = sys
    time.sleep(0.2)  # long enough for a screen to be read
with importing():
    print("imported")
"""


def test_an_import_that_takes_seconds_is_named_once() -> None:
    screen = on_a_terminal([sys.executable, "-c", HEAVY])
    assert screen.shown.count("importing PyTorch and Lightning") == 1 and screen.last == ["imported"]
