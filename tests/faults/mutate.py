"""Single-key mutations of a valid command line: likely typing errors and arbitrary values."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.config import conf_dir

NOT_OURS = ("hydra", "paths")  # set by the campaign
FORKS = ("num_workers", "devices", "num_nodes", "threads")  # a huge number of them would overload the machine
WRONG_WORDS = ["abc", "''", "../../x", "ünï", "nan", "1e999", "'a b'", "[", "${nope}", "${oc.env:HOME}"]
EXTREMES = ["0", "-1", "2147483648", "1000000000000000", "1e30", "1e-30", "-1e30", "nan", "inf", "-inf", "1.5"]
OTHER_TYPES = ["null", "true", "abc", "[]", "[1]", "[[1],[2]]", "{a:1}", "'1'", "''"]
LISTS = ["[]", "null", "abc", "5", "[-1]", "[nan]", "[[1]]", "[0,0]", "[abc]", "[null]", "[1e30,1e30]"]


class Mutation(NamedTuple):
    """The kind of mutation, and the words that are added to the command line."""

    kind: str
    words: list[str]


class Key(NamedTuple):
    """A dotted key of the configuration with its resolved value; a node's value is a dict."""

    path: str
    value: Any


def keys(cfg: DictConfig) -> list[Key]:
    """All keys of a composed configuration, nodes included."""
    content = OmegaConf.to_container(OmegaConf.masked_copy(cfg, [str(k) for k in cfg if k not in NOT_OURS]))
    collected: list[Key] = []

    def visit(node: dict[str, Any], prefix: str) -> None:
        for name, value in node.items():
            path = f"{prefix}{name}"
            collected.append(Key(path, OmegaConf.select(cfg, path) if isinstance(value, str) else value))
            if isinstance(value, dict):
                visit(value, f"{path}.")

    visit(content, "")
    return collected


def mutation(cfg: DictConfig, chance: random.Random) -> Mutation:
    """A random mutation."""
    all_keys = keys(cfg)
    leaves = [key for key in all_keys if not isinstance(key.value, dict | DictConfig)]
    nodes = [key for key in all_keys if isinstance(key.value, dict | DictConfig)]
    kind = chance.choices(
        ["value", "deleted", "unknown", "misspelled", "option", "node", "syntax"], [60, 12, 8, 5, 7, 5, 3]
    )[0]
    key = chance.choice(nodes if kind in ("unknown", "node") else leaves)
    if kind == "value":
        return Mutation(kind, [f"{key.path}={wrong_value(key, chance)}"])
    if kind == "deleted":
        return Mutation(kind, [f"~{chance.choice([key, chance.choice(nodes)]).path}"])
    if kind == "unknown":
        return Mutation(kind, [f"+{key.path}.{chance.choice(['nope', 'lr', 'seed', '_target_', 'steps'])}=1"])
    if kind == "misspelled":
        return Mutation(kind, [f"{misspelled(key.path, chance)}={wrong_value(key, chance)}"])
    if kind == "option":
        groups = sorted(path.name for path in conf_dir().iterdir() if path.is_dir() and path.name != "hydra")
        group = chance.choice(groups)
        return Mutation(kind, [f"{group}={chance.choice(['nope', 'null', 'Uniform', 'eps', '[a,b]', ''])}"])
    if kind == "node":
        return Mutation(kind, [f"{key.path}={chance.choice(['null', '5', 'abc', '{}', '[]', '{a:1}'])}"])
    broken = [key.path, f"={key.path}", f"{key.path}==1", f"{key.path}=[1", f"-{key.path}=1"]
    return Mutation(kind, [chance.choice(broken)])


def wrong_value(key: Key, chance: random.Random) -> str:
    """A wrong value: another sign, an extreme, another type."""
    value, name = key.value, key.path.split(".")[-1]
    if name in FORKS:
        return chance.choice(["0", "-1", "-7", "1.5", "nan", "abc", "null", "[]", "3"])
    if isinstance(value, bool):
        return chance.choice(["abc", "2", "-1", "null", "[]", "'yes'", str(not value).lower()])
    if isinstance(value, int | float):
        own = [str(-value), str(value * 2), str(value / 3), f"'{value}'", f"[{value}]"]
        return chance.choice([*own, *EXTREMES, *EXTREMES, *OTHER_TYPES])
    if isinstance(value, str):
        return chance.choice([*WRONG_WORDS, *OTHER_TYPES, value + "x", value[:-1] or "x", "-1"])
    if value is None:
        return chance.choice([*EXTREMES, *OTHER_TYPES, *WRONG_WORDS])
    return chance.choice(LISTS)


def misspelled(path: str, chance: random.Random) -> str:
    """The path with two letters swapped, one left out, or one doubled."""
    at = chance.randrange(max(1, len(path) - 1))
    swapped = path[:at] + path[at + 1 : at + 2] + path[at] + path[at + 2 :]
    return chance.choice([swapped, path[:at] + path[at + 1 :], path[:at] + path[at] + path[at:]]) or "x"
