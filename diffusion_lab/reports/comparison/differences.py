"""The differences of a row from the baseline that its name does not imply.

A method's name implies all that its yaml file sets: the sampler and weighting of `speed` are not listed if they are
those of the file. Everything else in which two rows differ is a possible cause of their difference and is listed. A
`RunConfig` of a run therefore has two configurations: its own, and the one implied by its options alone, with
references such as ${batch_size} resolved by the run's own values. Then

    listed  = options that differ and that one of the two names does not imply, and
              keys that differ and for which one of the two runs has another value than its options imply

so that a key which only follows another one (dataset.batch_size follows batch_size) is not repeated, and no list of
methods or keys is needed. An option that is not a yaml file of the package, such as a user's own sampler, implies the
whole part as the run has it, but for the keys that were typed. The `ConfigReader` of configurations, which needs Hydra,
is an argument of `group_runs`; without it, and for a run whose method or experiment is not known, all keys that differ
are listed.

A part is named by the option that was typed for it, which run.json records, and by its class where it does not, where
its `_target_` was typed, and where another part of that name has another class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from diffusion_lab.runs.identity import RECORDING, followers_of_seed, of_method
from diffusion_lab.runs.run import Run
from diffusion_lab.runs.shell_commands import key_of

MISSING = object()
WORD = re.compile(r"\w[\w./-]*")  # an option as it is typed


Names = Sequence[tuple[Any, str]]  # parts of a configuration, and the option that was typed for each


@dataclass(frozen=True)
class RunConfig:
    """A run's configuration, for comparison.

    Attributes:
        config: resolved, without the seed and keys that do not change the results.
        expected: the configuration implied by `options` alone, with the run's own values otherwise; None: unknown.
        options: group -> option of the run, e.g. {"schedule": "cosine"}.
        named: group -> option implied by the run's name alone.
        derived: keys that only follow another one, e.g. "dataset.batch_size".
        own: places of the parts whose options are not the package's.
        names: the parts of the configuration with the options that were typed for them.
    """

    config: dict[str, Any]
    expected: dict[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    named: Mapping[str, Any] = field(default_factory=dict)
    derived: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    names: Names = ()


ConfigReader = Callable[[Run], RunConfig]


class Difference(NamedTuple):
    """One key with its value in a row and in the baseline, as text."""

    key: str
    own: str
    base: str

    def __str__(self) -> str:
        return f"{self.key}={self.own} (baseline {self.base})"


def read_config_alone(run: Run) -> RunConfig:
    """A run's configuration without knowledge of its options."""
    config = of_method(run.config)
    return RunConfig(config, derived=followers_of_seed(config, run.seed), names=names_of(config, run))


def names_of(config: Mapping[str, Any], run: Run) -> Names:
    """The parts of a run's configuration with their options."""
    return [(node, option) for place, option in options_of(run).items() if is_part(node := lookup(config, place))]


def options_of(run: Run) -> dict[str, str]:
    """Place of a part -> its option, as far as run.json records words that can be typed. A part whose class was typed
    is no longer that of its option."""
    typed = {group: option for group, option in run.choices.items() if isinstance(option, str)}
    words = {key_of_group(group): option for group, option in typed.items() if WORD.fullmatch(option)}
    classes = set(map(key_of, run.overrides))
    return {place: option for place, option in words.items() if f"{place}._target_" not in classes}


def is_part(value: Any) -> bool:
    """Whether a value of a configuration is a part, which has a class."""
    return isinstance(value, dict) and "_target_" in value


def differences(own: RunConfig, base: RunConfig) -> list[Difference]:
    """The differences of `own` from `base` to be listed, whole parts first."""
    if own.expected is None or base.expected is None:
        following = own.derived & base.derived
        keys = [key for key in changed(own.config, base.config) if key not in following and key not in RECORDING]
        return _once([Difference(key, *_words(own, base, key)) for key in keys])
    options = [
        Difference(key_of_group(group), *(str(one.options.get(group) or "none") for one in (own, base)))
        for group in dict.fromkeys([*own.options, *base.options])
        if own.options.get(group) != base.options.get(group)
        and any(one.options.get(group) != one.named.get(group) for one in (own, base))
        and lookup(own.config, key_of_group(group)) != lookup(base.config, key_of_group(group))
    ]
    options = [one for one in options if not any(within(one.key, other.key) and one != other for other in options)]
    keys = dict.fromkeys([*changed(own.config, own.expected), *changed(base.config, base.expected)])
    for place in sorted(own.own & base.own):  # one option of the user's, perhaps from two editions of its yaml file
        keys |= dict.fromkeys(changed(lookup(own.config, place), lookup(base.config, place), place))
    different = [key for key in keys if lookup(own.config, key) != lookup(base.config, key) and key not in RECORDING]
    different = [key for key in different if not any(within(key, other) and key != other for other in different)]
    return [*options, *(Difference(key, *_words(own, base, key)) for key in sorted(different, key=_depth))]


def changed(one: Any, other: Any, path: str = "") -> list[str]:
    """Keys of the smallest nodes in which two configurations differ; for parts of different classes the part itself."""
    if one == other:
        return []
    parts = [node.get("_target_") if isinstance(node, dict) else None for node in (one, other)]
    if not (isinstance(one, dict) and isinstance(other, dict)) or parts[0] != parts[1]:
        return [path]
    keys = []
    for key in dict.fromkeys([*one, *other]):
        keys += changed(one.get(key, MISSING), other.get(key, MISSING), f"{path}.{key}".lstrip("."))
    return keys


def without_keys(config: Mapping[str, Any], keys: frozenset[str], path: str = "") -> dict[str, Any]:
    """A copy without the nodes at the given dotted keys."""
    kept = {}
    for key, value in config.items():
        place = f"{path}.{key}".lstrip(".")
        if place not in keys:
            kept[key] = without_keys(value, keys, place) if isinstance(value, dict) else value
    return kept


def replaced(config: Any, node: Any, value: Any) -> Any:
    """A copy in which `value` stands wherever an equal node stood."""
    if config == node:
        return value
    return {k: replaced(v, node, value) for k, v in config.items()} if isinstance(config, dict) else config


def canonical(node: Any) -> str:
    """A text that is equal for equal nodes."""
    return json.dumps(node, sort_keys=True, default=str)


def lookup(config: Any, key: str) -> Any:
    """The value at a dotted key, or `MISSING`."""
    for part in key.split("."):
        if not isinstance(config, dict) or part not in config:
            return MISSING
        config = config[part]
    return config


def within(key: str, node: str) -> bool:
    """Whether a key is a node or below it."""
    return key == node or key.startswith(f"{node}.")


def short(value: Any, names: Names = ()) -> str:
    """A configuration value as short text; a part is named by the option that was typed for it, else by its class:
    MinSNR -> min_snr, UNet -> unet, SpeeD -> speed."""
    if value is MISSING:
        return "none"
    if is_part(value):
        option = next((option for part, option in names if part == value), None)
        name = str(value["_target_"]).rpartition(".")[2]
        return option or re.sub(r"(?<=[a-z0-9])(?=[A-Z][A-Za-z])|(?<=[A-Z]{2})(?=[A-Z][a-z])", "_", name).lower()
    return value if isinstance(value, str) else json.dumps(value, default=str, separators=(",", ":"))


def shorts(values: Sequence[Any], names: Sequence[Names]) -> list[str]:
    """The values as short texts, equal parts by one name; parts of several classes that would have one name are named
    by their classes."""
    every = [pair for known in names for pair in known]
    words = [short(value, [*known, *every]) for value, known in zip(values, names, strict=True)]
    classes: dict[str, set[str]] = {}
    for value, word in zip(values, words, strict=True):
        classes.setdefault(word, set()).add(repr(value["_target_"]) if is_part(value) else "")
    return [short(value) if len(classes[word]) > 1 else word for value, word in zip(values, words, strict=True)]


def _words(own: RunConfig, base: RunConfig, key: str) -> tuple[str, str]:
    one, other = shorts([lookup(own.config, key), lookup(base.config, key)], [own.names, base.names])
    return one, other


def key_of_group(group: str) -> str:
    """The key of a group's part: `solver/spacing` is at solver.spacing, `features@dataset.features` where it says."""
    return group.partition("@")[2] or group.replace("/", ".")


def _depth(key: str) -> int:
    return key.count(".")


def _once(different: list[Difference]) -> list[Difference]:
    """Without keys that have the last part and the values of a shorter key, to which they most likely refer."""
    kept: dict[tuple[str, str, str], Difference] = {}
    for one in sorted(different, key=lambda one: _depth(one.key)):
        kept.setdefault((one.key.rpartition(".")[2], one.own, one.base), one)
    return list(kept.values())
