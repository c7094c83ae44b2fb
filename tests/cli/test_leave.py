"""The end of a command: nothing is lost, and Python does not clear its modules."""

from __future__ import annotations

import atexit
import sys
import threading
from pathlib import Path

import pytest

from diffusion_lab.cli.main import leave, main
from tests.harness import Child


def test_a_command_that_is_the_process_ends_it_after_threads_and_exit_functions(tmp_path: Path) -> None:
    def thread() -> None:
        threading.main_thread().join()  # until it is about to end
        print("thread")

    def command() -> None:
        atexit._clear()  # those of the process that runs the tests
        atexit.register(lambda: print("exit function", flush=True))
        threading.Thread(target=thread).start()
        sys.argv = ["diffusion-lab", "list", "sampler=nothing"]
        main()
        print("returned")

    child = Child(command, tmp_path / "log")
    assert child.wait() == 2
    *said, before, last = (tmp_path / "log").read_text().splitlines()
    assert (before, last) == ("thread", "exit function") and "config error" in " ".join(said)


def test_a_command_called_from_python_returns() -> None:
    assert main(["list", "sampler=mode"]) == 0


def test_tools_that_look_at_the_end_of_a_process_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os._exit", lambda code: pytest.fail("the process would have ended"))
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        assert leave(3) == 3
    finally:
        sys.setprofile(before)
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/tool.so")
    assert leave(3) == 3
