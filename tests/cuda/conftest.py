"""Each test of this folder runs in a process of its own.

A backward pass on a device starts autograd's thread for it, and a process with such a thread cannot fork a training
that goes backward, which is what most other tests do.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.harness import Child


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Call the test in a forked child; its traceback is the message of the failure."""
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}
    with TemporaryDirectory() as folder:
        Child(lambda: pyfuncitem.obj(**given), Path(folder) / "log").succeed(600.0)
    return True
