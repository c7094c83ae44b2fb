"""A check, where it runs, and what it finds.

    @check(limit=30)
    def my_check(place: Place) -> Finding:
        '''What it claims, in one line.'''
        return ok("in words") if ... else differs("by how much")

A function of a module in `checks/` that has this decorator is a check; its name is the name of its line. Modules of
checks import torch and what needs it inside their functions, because their names are known without.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

OK, DIFFERS, IMPOSSIBLE = "ok", "differs", "not possible here"
CPU = "cpu"


class Finding(NamedTuple):
    """The result of a check.

    Attributes:
        status: `OK`, `DIFFERS` or `IMPOSSIBLE`.
        words: what was found; for `DIFFERS` the figure, for `IMPOSSIBLE` the reason.
        crashed: whether the check ended with an error, after which its process is not used again: a fault on a GPU
            makes all later calls of the process fail.
    """

    status: str
    words: str = ""
    crashed: bool = False


def ok(words: str = "") -> Finding:
    """It is there, or the claim holds."""
    return Finding(OK, words)


def differs(figure: str, crashed: bool = False) -> Finding:
    """It is not as it should be, or the claim does not hold."""
    return Finding(DIFFERS, figure, crashed)


def impossible(why: str) -> Finding:
    """It cannot be checked on this machine."""
    return Finding(IMPOSSIBLE, why)


@dataclass(frozen=True)
class CheckPlace:
    """Where a check runs.

    Attributes:
        device: cpu, cuda:0, mps, ...
        work: a folder for the runs of all checks; what one leaves there is read by those after it.
        devices: number of devices of the kind, for runs of several processes.
        settings: the settings of `diffusion-lab train` that choose the device.
    """

    device: str
    work: Path
    devices: int = 1
    settings: tuple[str, ...] = field(default=())

    @property
    def kind(self) -> str:
        """cpu, cuda or mps."""
        return self.device.partition(":")[0]

    @property
    def folder(self) -> Path:
        """The folder of the runs on this device."""
        return self.work / self.device.replace(":", "-")


def place_of(device: str, work: Path, devices: int = 1) -> CheckPlace:
    """The place of a device by its name."""
    kind, _, number = device.partition(":")
    if kind == "cuda":
        settings = ("trainer.accelerator=gpu", f"trainer.devices=[{number or 0}]")
    else:
        settings = (f"trainer.accelerator={kind}",)
    return CheckPlace(device, work, devices, settings)


Function = Callable[[CheckPlace], Finding]


def check(limit: float, fresh: bool = False) -> Callable[[Function], Function]:
    """Mark a function as a check.

    Args:
        limit: seconds that it may take on a busy machine; then its process is killed.
        fresh: whether it must be the first in its process, because it forks, or changes what others see.
    """

    def mark(function: Function) -> Function:
        function.limit, function.fresh = limit, fresh  # type: ignore[attr-defined]
        return function

    return mark


class Check(NamedTuple):
    """One line of the output.

    Attributes:
        module: dotted name of the module.
        function: name of the function in it.
        limit: seconds.
        device: on which it runs.
    """

    module: str
    function: str
    limit: float
    device: str = CPU

    @property
    def name(self) -> str:
        """ "kill and resume" for `kill_and_resume`."""
        return self.function.replace("_", " ")

    @property
    def claim(self) -> str:
        """The first line of its docstring."""
        return (self._function.__doc__ or "").partition("\n")[0]

    @property
    def fresh(self) -> bool:
        """Whether it must be the first in its process."""
        return self._function.fresh  # type: ignore[attr-defined]

    @property
    def _function(self) -> Function:
        return getattr(importlib.import_module(self.module), self.function)

    def run(self, place: CheckPlace) -> Finding:
        """The finding; an error of the check is one."""
        try:
            return self._function(place)
        except Exception as error:
            return differs(described(error), crashed=True)


def checks_of(module: ModuleType, device: str = CPU) -> list[Check]:
    """The checks of a module in the order in which they are written."""
    found = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
    return [Check(module.__name__, one.__name__, one.limit, device) for one in found if hasattr(one, "limit")]


def described(error: BaseException) -> str:
    """The type of an error and its message in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
