"""The configuration of a recorded run beside the one that its options compose with the current yaml files."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from diffusion_lab.cli.config import DEFAULT_CHOICES, conf_dir, plain_value, register_resolvers, without
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.options.defaults import defaults
from diffusion_lab.cli.stored_compositions import Composition, stored
from diffusion_lab.reports import Run, RunConfig
from diffusion_lab.reports.comparison.differences import (
    MISSING,
    key_of_group,
    lookup,
    names_of,
    read_config_alone,
    within,
    without_keys,
)
from diffusion_lab.runs.identity import filled, followers_of_seed, leaves
from diffusion_lab.runs.shell_commands import key_of

_PLACE = re.compile(r"\$\{(\w+(?:\.\w+)*)\}")  # a reference to one key
_WHOLE = ("base", "method", "experiment", "scale", "debug")  # options that stand for several keys instead of a part


def read_run_config(run: Run) -> RunConfig:
    """The run's configuration beside the one of its options; without the latter if a method or preset does not exist
    here, or if the configuration contains a reference and so was not written by a run.

    An option that does not exist here, such as a sampler of the user's own, implies the part that the run has, without
    the keys that were typed; nothing of it is composed.
    """
    parts = (run.config.get("dataset"), run.config.get("network"))
    unplain = "${" in str(run.config) or isinstance(run.config.get("init_from"), str)  # a path there would be read
    if unplain or not all(isinstance(part, dict) for part in parts):
        return read_config_alone(run)
    register_resolvers()
    saved = filled(run.config)
    config = _plain(saved)
    options = run.choices
    own = {group for group, option in options.items() if option is not None and not _known(group, option)}
    names = names_of(config, run)
    plainly = RunConfig(config, derived=followers_of_seed(config, run.seed), names=names)
    if not options or own & {*_WHOLE} or not all(_is_own(group, options[group]) for group in own):
        return plainly
    named_by = {"base": options.get("base"), "method": options.get("method")}
    alone = _compose(_words(named_by))
    if alone is None:
        return plainly
    parts = {group: option for group, option in options.items() if group not in _WHOLE}
    further = {group: option for group, option in parts.items() if group not in own and option != alone[1].get(group)}
    composed = _compose(_words({**named_by, **further}))
    if composed is None:
        return plainly
    named = alone[1]
    if not options.get("method"):  # its name has the sampler and the options that are not the default
        inside = {group: options.get(group) for group in ("sampler", *DEFAULT_CHOICES)}
        chosen = {group: further[group] for group in further if group in inside}
        named = _options(named_by, alone[1], chosen) | inside
    expected, derived = _in_context(composed[0], saved)
    places = {place for group in own if lookup(config, place := key_of_group(group)) is not MISSING}
    for place in places:
        _put(expected, place, lookup(saved, place))
    typed = {key for key in map(key_of, run.overrides) if any(key != place and within(key, place) for place in places)}
    implied = without_keys(_plain(expected), frozenset(typed))
    return RunConfig(config, implied, parts, named, frozenset(derived), frozenset(places), names)


def _is_own(group: Any, option: Any) -> bool:
    """Whether the option could be a yaml file of the user's own: words as they are typed, and none of Hydra's."""
    place = r"(@\w+(\.\w+)*)?"
    return (
        all(isinstance(name, str) for name in (group, option))
        and bool(re.fullmatch(rf"\w+(/\w+)*{place}", group) and re.fullmatch(r"\w+([/.-]\w+)*", option))
        and not group.startswith("hydra")
    )


def _known(group: Any, option: Any) -> bool:
    """Whether the option is one of our yaml files. A run folder is not trusted: nothing else in it is composed."""
    return (
        all(isinstance(name, str) and re.fullmatch(r"\w+(/\w+)*", name) for name in (group, option))
        and not group.startswith("hydra")
        and (conf_dir() / group / f"{option}.yaml").is_file()
    )


def _options(named_by: dict[str, Any], alone: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """The options of `diffusion-lab train` with those of `named_by` and `chosen`, with the parts inside a part, such as
    the base of a stratified sampler; `alone` are those with `named_by`. Composed only if a part has parts or another
    option with it, which most do not: a composition takes 0.3 s."""
    files = [(group, one) for group, option in chosen.items() for one in (alone.get(group), option) if one]
    if chosen.keys() <= alone.keys() and not any(defaults(conf_dir() / group / f"{one}.yaml") for group, one in files):
        return alone | chosen
    whole = _compose(_words({**named_by, **chosen}))
    return alone if whole is None else whole[1]


def _words(options: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{group}={option}" for group, option in options.items() if option not in (None, "null"))


@cache
def _compose(words: tuple[str, ...]) -> Composition | None:
    """Configuration with its references, and options, of `diffusion-lab train WORDS`; None if the current yaml files
    cannot compose it."""
    return stored(words, lambda: _composed(words))


def _composed(words: tuple[str, ...]) -> Composition | None:
    from hydra import compose
    from hydra.errors import HydraException

    try:
        with initialized():
            cfg = compose("train", overrides=list(words), return_hydra_config=True)
        options = {k: v for k, v in cfg.hydra.runtime.choices.items() if not k.startswith("hydra/")}
        content = cast(dict[str, Any], OmegaConf.to_container(cfg))
    except (HydraException, OmegaConfBaseException):
        return None
    return {key: value for key, value in content.items() if key != "hydra"}, options


def _in_context(content: dict[str, Any], saved: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The composed configuration with its references resolved by the run's values, and the keys of the references whose
    result is the run's value. A key that refers to another one, as most do, is looked up: OmegaConf takes a hundred
    times as long."""
    expected, derived = copy.deepcopy(content), []
    context: DictConfig | None = None
    for key, raw in leaves({name: node for name, node in content.items() if name != "paths"}).items():
        if "${" not in str(raw):
            continue
        own, value = lookup(saved, key), MISSING
        if isinstance(raw, str) and (place := _PLACE.fullmatch(raw)):
            value = lookup(saved, place[1])
        if value is MISSING:
            context = DictConfig(saved) if context is None else context
            value = _resolved(context, key, raw, own)
        if own is MISSING:
            own = None
            _put(saved, key, None)
        _put(expected, key, value)
        if value == own:
            derived.append(key)
    expected["paths"] = saved["paths"]
    return expected, derived


def _resolved(context: DictConfig, key: str, raw: Any, own: Any) -> Any:
    """What a text with references is at its place in the run's configuration; itself if it refers to what the run does
    not have."""
    try:
        OmegaConf.update(context, key, raw, merge=False, force_add=True)
        value = plain_value(context, key)
    except OmegaConfBaseException:
        value = raw
    OmegaConf.update(context, key, None if own is MISSING else own, merge=False, force_add=True)
    return value


def _put(config: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key, with the nodes that lead to it."""
    *parents, last = key.split(".")
    for parent in parents:
        inner = config.get(parent)
        config[parent] = config = inner if isinstance(inner, dict) else {}
    config[last] = value


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """The keys that affect the results, without the seed."""
    return {key: value for key, value in without(config).items() if key != "seed"}
