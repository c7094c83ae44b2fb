"""A key that came later than a run leaves the run's name, its hashes and its right to go on as they were."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.config import config_hash, group_hash, plain
from diffusion_lab.cli.errors import InvalidConfig
from diffusion_lab.cli.same_run import check_same_run
from diffusion_lab.cli.targets import PACKAGE_ONLY, resolve
from diffusion_lab.cli.untrusted_run import recorded_config
from diffusion_lab.runs.identity import ADDED_LATER, dropped, filled

UNIFORM = "diffusion_lab.timesteps.Uniform"
DEEP = "sampler=stratified"  # its base is uniform
# (entry, how the key is given, the default in words, another value)
KEYS = [
    (UNIFORM, "slope", 0.5, "+sampler.base.slope=0.5", "+sampler.base.slope=0.25"),
    ("", "tempo", None, "+tempo=null", "+tempo=3"),
    ("", "callbacks.clock", {"_target_": "a.Clock", "every": 1}, "+callbacks.clock={_target_:a.Clock,every:1}", None),
    ("diffusion_lab.timesteps.Stratified", "turns", [1, 2], "+sampler.turns=[1,2]", "+sampler.turns=[2,1]"),
]


@pytest.mark.parametrize(("target", "key", "default", "given", "other"), KEYS)
def test_the_hash_stays_at_the_default_and_changes_elsewhere(
    composed: Any, monkeypatch: pytest.MonkeyPatch, target: str, key: str, default: Any, given: str, other: str | None
) -> None:
    old, new = composed(DEEP), composed(DEEP, given)
    other = other or "+callbacks.clock={_target_:a.Clock,every:2}"
    before = config_hash(old), group_hash(old)
    assert config_hash(new) != before[0]  # what an entry is there for
    monkeypatch.setitem(ADDED_LATER, target, ADDED_LATER.get(target, {}) | {key: default})
    assert (config_hash(old), group_hash(old)) == before
    assert (config_hash(new), group_hash(new)) == before
    assert config_hash(OmegaConf.create(plain(new))) == before[0]  # as it is read back
    changed = composed(DEEP, other)
    assert config_hash(changed) != before[0] and group_hash(changed) != before[1]


@pytest.mark.parametrize(("target", "key", "default", "given", "other"), KEYS[:2])
def test_a_run_goes_on_whether_its_saved_configuration_has_the_key_or_not(
    composed: Any, monkeypatch: pytest.MonkeyPatch, target: str, key: str, default: Any, given: str, other: str
) -> None:
    old, new, changed = composed(DEEP), composed(DEEP, given), composed(DEEP, other)
    if default is not None:
        with pytest.raises(InvalidConfig):
            check_same_run(new, plain(old), 0)
    monkeypatch.setitem(ADDED_LATER, target, ADDED_LATER.get(target, {}) | {key: default})
    for cfg in (old, new):
        for saved in (old, new):
            check_same_run(cfg, plain(saved), 0)
        path, value = other.removeprefix("+").split("=")
        with pytest.raises(InvalidConfig, match=f"{path}={value} must equal the checkpoint's {default} to continue"):
            check_same_run(changed, plain(cfg), 0)
        with pytest.raises(InvalidConfig, match=f"{path}={default} must equal the checkpoint's {value} to continue"):
            check_same_run(cfg, plain(changed), 0)


def test_the_saved_configuration_of_an_old_run_is_completed(composed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDED_LATER, UNIFORM, {"slope": 0.5})
    saved = recorded_config(plain(composed(DEEP)))
    assert saved.sampler.base.slope == 0.5 and "slope" not in saved.sampler


def test_nodes_are_found_in_lists_and_inner_ones_first_and_what_is_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADDED_LATER, "A", {"x": 1, "deep.y": 2})
    monkeypatch.setitem(ADDED_LATER, "", {"part": {"_target_": "A", "y": 2}})
    given: dict[str, Any] = {"a": [{"_target_": "A", "x": 1, "y": 1}, {"_target_": "B", "x": 1}], "x": 1}
    before = copy.deepcopy(given)
    assert dropped(given) == {"a": [{"_target_": "A", "y": 1}, {"_target_": "B", "x": 1}], "x": 1} and given == before
    assert dropped({"part": {"_target_": "A", "x": 1, "y": 2}}) == {}
    assert dropped(true := {"part": {"_target_": "A", "x": True, "y": 2}}) == true
    full = filled({"a": {"_target_": "A"}})
    assert full == {"a": {"_target_": "A", "x": 1}, "part": {"_target_": "A", "y": 2}}
    full["part"]["y"] = 3
    assert ADDED_LATER[""]["part"]["y"] == 2


def test_the_entries_of_the_table_are_arguments_of_their_class() -> None:
    for target, keys in ADDED_LATER.items():
        arguments = inspect.signature(resolve("ADDED_LATER", target, PACKAGE_ONLY)).parameters if target else {}
        for name, default in ((key.partition(".")[0], default) for key, default in keys.items() if target):
            assert name in arguments, f"{target} takes no {name}"
            assert arguments[name].default in (default, inspect.Parameter.empty), f"{target}: {name}"
