"""The values that a setting allows, and the message for other values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from diffusion_lab.cli.errors import ConfigError, nearest

LARGEST = 2**63 - 1  # of an integer that torch can hold


@dataclass(frozen=True)
class Setting:
    """The values of a setting: `kind` int, float, bool or str; `least` inclusive unless `open`, `most` inclusive; None
    if `null`; a string in `among`, or one that matches `pattern`, which `form` describes."""

    kind: type
    cure: str
    least: float = -math.inf
    open: bool = False
    null: bool = False
    among: tuple[str, ...] = ()
    most: float = LARGEST
    pattern: str = ""
    form: str = ""

    def fault(self, key: str, value: Any) -> str | None:
        """The message for a value that is not allowed, else None."""
        if self.allows(value):
            return None
        hint = nearest(str(value), self.among)
        cure = hint or f"; {self._cure(key, value)}"  # two pieces of advice would contradict each other
        return f"{key}={as_text(value)} must be {self._wanted(value)}{cure}"

    def allows(self, value: Any) -> bool:
        """Whether the value is allowed."""
        if value is None:
            return self.null
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not self.kind:
            return False
        if self.kind in (int, float):
            above = value > self.least if self.open else value >= self.least
            return math.isfinite(value) and above and value <= self.most
        if self.kind is str and self.pattern and not re.fullmatch(self.pattern, str(value)):
            return False
        return value in self.among if self.among else value != ""

    def _wanted(self, value: Any) -> str:
        if self.among:
            return f"one of {', '.join(self.among)}"
        if self.form and isinstance(value, str):
            return self.form
        words = {int: "an integer", float: "a number", bool: "true or false", str: "text"}[self.kind]
        if self.least > -math.inf:
            words += f" {'>' if self.open else '>='} {self.least:g}"
        if type(value) is self.kind is int and value > self.most:
            words += f" and <= {self.most}"
        return words + (" or null" if self.null else "")

    def _cure(self, key: str, value: Any) -> str:
        """What to type instead: the same number if yaml only parsed it as another type."""
        if self.kind is int:
            number = _as_integer(value)
            if number is not None and self.allows(number):
                return f"write {key}={number}"
            if isinstance(value, list | ListConfig):
                return f"for several runs use -m {key}={','.join(map(str, value))}"
        if self.kind in (int, float) and isinstance(value, str):  # `use 2000` would read as what 3k is
            return re.sub(r"^use (\d)", r"use a number such as \1", self.cure)
        return self.cure


def _as_integer(value: Any) -> int | None:
    """1e5, "007" and "3k" as 100000, 7 and 3000; None if the value is not an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    match = re.fullmatch(r"(\d+)(k|m)?", value, re.IGNORECASE) if isinstance(value, str) else None
    return int(match[1]) * {None: 1, "k": 10**3, "m": 10**6}[match[2] and match[2].lower()] if match else None


def faults_of(cfg: DictConfig, settings: Mapping[str, Setting]) -> list[ConfigError]:
    """A message for each setting, by dotted key, that is missing or invalid; one for a node that is gone."""
    faults = []
    for key, setting in settings.items():
        value = OmegaConf.select(cfg, key)
        if value is None and not setting.null:
            node = key.rpartition(".")[0]
            whole = bool(node) and OmegaConf.select(cfg, node) is None
            gone = f"{node} must have its settings; leave ~{node} or {node}=null out"
            faults.append(gone if whole else f"{key} is missing; {setting.cure}")
        elif not setting.allows(value):
            faults.append(setting.fault(key, value))
    return [ConfigError(text) for text in dict.fromkeys(faults)]


def as_text(value: Any) -> str:
    """A value as it would be typed on the command line."""
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value) or "''"
