"""The tests of this folder run in another process: one for all of them, and one more for each that patches something.

A backward pass on a device starts autograd's threads for it, and a process with such threads cannot fork a training
that goes backward, which is what most other tests do.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.harness import Child

LIMIT_S = 600.0
SENT = {"tmp_path"}  # what a fixture gives that means the same in another process


class Caller:
    """A forked process that calls the tests whose names it is sent, one after another."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._child = folder, None

    def call(self, item: pytest.Function, given: dict[str, Any]) -> None:
        """Call a test with what fixtures gave; its traceback is the message of the failure."""
        if self._child is None:
            items = {one.nodeid: one for one in item.session.items}
            self._pipe, theirs = Pipe()
            self._child = Child(lambda: self._serve(theirs, items), self._folder / "log")
            theirs.close()
        self._pipe.send((item.nodeid, given))
        try:
            said = self._pipe.recv() if self._pipe.poll(LIMIT_S) else f"no answer within {LIMIT_S} s"
        except EOFError:
            said = f"the process ended:\n{self._child.log.read_text()[-5000:]}"
            self.end()
        assert not said, said

    def _serve(self, asked: Connection, items: dict[str, Any]) -> None:
        self._pipe.close()
        while True:
            name, given = asked.recv()
            try:
                items[name].obj(**params(items[name]), **given)
                asked.send("")
            except BaseException:
                asked.send(traceback.format_exc())

    def end(self) -> None:
        if self._child is not None:
            self._pipe.close()
            self._child.kill()
            self._child = None


def params(item: pytest.Function) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture(autouse=True, scope="session")
def caller() -> Iterator[Caller]:
    with TemporaryDirectory() as folder:
        caller = Caller(Path(folder))
        yield caller
        caller.end()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    fixtures = {name: value for name, value in given.items() if name not in params(pyfuncitem)}
    if fixtures.keys() <= SENT:
        caller: Any = pyfuncitem.funcargs["caller"]
        caller.call(pyfuncitem, fixtures)
        return True
    with TemporaryDirectory() as folder:
        Child(lambda: pyfuncitem.obj(**given), Path(folder) / "log").succeed(LIMIT_S)
    return True
