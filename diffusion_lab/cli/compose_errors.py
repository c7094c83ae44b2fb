"""Composition errors of Hydra and OmegaConf as one sentence each: key, value, what is allowed, the cure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import metadata

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from diffusion_lab.cli.conf_folder import config_dirs
from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.errors import ConfigError, nearest
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.cli.own_yaml import misplaced, own_ones

NO_OPTION = re.compile(r"Config group override must be a string or a list\. Got ")  # a ValueError, as Hydra raises it
PARSER = re.compile(
    r"\w+(Exception|Error): |.*(viable alternative|mismatched input|extraneous input)|Error when parsing"
)
MOST_OF_A_NAME = 3  # keys that are listed for one name
KEY = re.compile(r"[+~]*[\w./@:-]+")
GROUP_OPTION = re.compile(r"^([\w/]+)=([\w/.-]+)$")


def is_compose_error(error: BaseException) -> bool:
    """Whether the configuration could not be composed, or a reference in it does not resolve."""
    return isinstance(error, HydraException | OmegaConfBaseException | YAMLError) or bool(NO_OPTION.match(str(error)))


@contextmanager
def explained(words: Sequence[str]) -> Iterator[None]:
    """An error of composing `train` with these words as a ConfigError, which says what to type."""
    try:
        yield
    except Exception as error:
        if not is_compose_error(error):
            raise
        raise ConfigError(explain(error, "train", list(words))) from error


def explain(error: BaseException, command: str, arguments: list[str]) -> str:
    """One sentence for a composition error of `diffusion-lab COMMAND ARGUMENTS`."""
    text = str(error)
    if isinstance(error, MissingConfigException):
        return _missing_option(text, arguments)
    if NO_OPTION.match(text):
        return _no_option(command, arguments)
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override), text)
    if match := re.match(r"Could not override '([^']+)'", text):
        inner = getattr(error.__cause__, "full_key", None)  # of a mapping that is given, dataset.source={a: 1}
        key = inner if isinstance(inner, str) and inner.startswith(f"{match[1]}.") else match[1]
        return _unknown_key(key, _meant(error, command, arguments), command, arguments)
    if match := re.match(r"Could not delete from config. '([^']+)' does not exist", text):
        return f"~{match[1]}: there is no setting {match[1]}{_hint(match[1], _meant(error, command, arguments))}"
    if match := re.match(r"(?:Ambiguous value for argument|Sweep parameters) '([^']+)'", text):
        return f"{match[1]} must be one value; for a sweep add -m before it, for a list write key=[a,b]"
    if match := re.match(r"Could not append to config. An item is already at '([^']+)'", text):
        return f"+{match[1]}: there is such a setting already; leave the + out"
    match = re.fullmatch(r"Error merging override (~\S+)", text)
    if match and "HydraConfig was not set" in str(error.__cause__):
        return f"{match[1]} must not be deleted, because it follows the run's own folder; leave it out"
    return _other(error)


def _unreadable(override: str, text: str) -> str:
    """The message for an override that Hydra cannot parse; names the character that needs quotes, if there is one."""
    key, equals, value = override.partition("=")
    odd = [character for character in value if not (character.isascii() and character.isprintable())]
    if equals and KEY.fullmatch(key) and odd:
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        return (
            f"""{override} must have its value in quotes, because of {odd[0]!r}; in a shell write "{key}='{quoted}'\""""
        )
    first = text.splitlines()[0] if text else ""
    reason = "it cannot be read" if PARSER.match(first) else first
    return f"{override}: {reason}; write key=value, and quote a value with special characters"


def _no_option(command: str, arguments: list[str]) -> str:
    """The message for a group that is given null or a number instead of the name of an option."""
    words = [word.partition("=") for word in arguments if not word.startswith("-")]
    groups = [key for key, _, value in words if value in ("null", "~", "None") or value.isdigit() or not key]
    known = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    key, value = next(((k, v) for k, _, v in words if k in known and k in groups), (None, None))
    if key is None:
        key, value = next(((k, v) for k, _, v in words if not k or k in groups), ("a group", "null"))
    options = sorted(path.stem for path in (conf_dir() / key).glob("*.yaml")) if key in known else []
    allowed = f"one of {', '.join(options)}" if options else "the name of an option"
    default = re.search(
        rf"^  - {re.escape(key)}: null", (conf_dir() / f"{command}.yaml").read_text(encoding="utf-8"), re.MULTILINE
    )
    asking = " and out of what the experiment sweeps" if any(word[0] == "experiment" for word in words) else ""
    cure = f"leave {key} out{asking} for none" if default else "write group=option"
    return f"{key}={value} must be {allowed}; {cure}"


def _hint(key: str, meant: DictConfig) -> str:
    """The group or dotted key nearest to the unknown one, in the configuration that it was meant for.

    First a setting of the command that differs in a letter, then the keys of parts that end with it.
    """
    dotted = _dotted(meant)
    if close := get_close_matches(key, [str(name) for name in meant], n=1, cutoff=0.85):
        return f" (did you mean '{close[0]}'?)"
    same = [f"'{one}'" for one in dotted if one.endswith(f".{key}")]
    if 0 < len(same) <= MOST_OF_A_NAME:
        return f" (did you mean {' or '.join(same)}?)"
    groups = [path.name for path in conf_dir().iterdir() if path.is_dir()]
    return nearest(key, [*groups, *dotted])


def _beside(key: str, meant: DictConfig, command: str, arguments: list[str]) -> str:
    """The settings of the part that an unknown key was meant for, or where all settings are listed."""
    part = key.rpartition(".")[0]
    node = OmegaConf.select(meant, part) if part else None
    if not isinstance(node, DictConfig):
        return f"`diffusion-lab {command} --help` lists them"
    names = [str(name) for name in node if not str(name).startswith("_")]
    options = (word for word in arguments if word.startswith(f"{part}=") and not word.startswith(f"{part}={{"))
    chosen = next(options, part)
    return f"{chosen} has {', '.join(names)}" if names else f"{chosen} has none"


def _meant(error: BaseException, command: str, arguments: list[str]) -> DictConfig:
    """The configuration that an unknown key was meant for."""
    wanted = getattr(error.__cause__, "parent_node", None)
    # Without OmegaConf's own reference to the configuration it is composed again, which takes 0.2 s.
    return _composed(command, arguments) if wanted is None else wanted._get_root()


def _composed(command: str, arguments: list[str]) -> DictConfig:
    """The configuration with the existing options that the arguments select, without other overrides."""
    from hydra import compose

    options = (match.groups() for match in map(GROUP_OPTION.match, arguments) if match)
    there = [(group, option) for group, option in options if (conf_dir() / group / f"{option}.yaml").is_file()]
    with initialized():  # a nested group fits only some options
        return compose(command, overrides=[f"{group}={option}" for group, option in there if "/" not in group])


def _dotted(cfg: DictConfig, prefix: str = "") -> list[str]:
    keys = []
    for key in cfg:
        keys.append(f"{prefix}{key}")
        node = None if OmegaConf.is_interpolation(cfg, str(key)) else OmegaConf.select(cfg, str(key))
        if isinstance(node, DictConfig):
            keys += _dotted(node, f"{prefix}{key}.")
    return keys


def _missing_option(text: str, arguments: list[str]) -> str:
    match = re.search(r"Could not find '([^']+)'", text)
    if match is None:
        return " ".join(text.split())
    group, _, option = match[1].rpartition("/")
    listed = re.search(r"Available options in '[^']*':\n((?:\t.*\n)+)", text)
    options = [name.strip() for name in listed[1].splitlines()] if listed else []
    if wrong := misplaced(group, option, config_dirs(arguments)):
        return f"{group}={option}: {wrong}"
    inherited = "" if any(word.startswith(f"{group}=") for word in arguments) else " (asked for by another file)"
    allowed = f"one of {', '.join(options)}" if options else f"a yaml file in {group}/, which has none"
    hint = _extra(option, group) or nearest(option, options) or _elsewhere(option, group)
    own = "" if hint or inherited or group.startswith("hydra/") else own_ones(arguments)
    return f"{group}={option}{inherited} must be {allowed}{hint}{own}"


def _extra(option: str, group: str) -> str:
    """` (pip install 'diffusion-lab[optuna]' adds it)` for one of Hydra's own options that has an extra of its name."""
    known = metadata.metadata("diffusion-lab").get_all("Provides-Extra") or [] if group.startswith("hydra/") else []
    return f" (pip install 'diffusion-lab[{option}]' adds it)" if option in known else ""


def _elsewhere(option: str, group: str) -> str:
    """` (did you mean network=dit_b?)` if another group has the option, or one that begins with it."""
    found = [
        f"{path.parent.name}={path.stem}"
        for path in sorted(conf_dir().glob("*/*.yaml"))
        if path.parent.name != group and (path.stem == option or path.stem.startswith(f"{option}_"))
    ]
    exact = [name for name in found if name.endswith(f"={option}")]
    return f" (did you mean {' or '.join((exact or found)[:2])}?)" if found else ""


def _unknown_key(key: str, meant: DictConfig, command: str, arguments: list[str]) -> str:
    from diffusion_lab.cli.synonyms import suggested  # here, because a command without an error needs no word of others

    value = next((word.split("=", 1)[1] for word in arguments if word.lstrip("+").startswith(f"{key}=")), None)
    given = key if value is None else f"{key}={value}"
    if key.startswith("hydra."):
        return _unknown_of_hydra(given, key, meant, command, arguments)
    ours = suggested(key, value)
    if ours is not None and re.split(r"\W", ours, maxsplit=1)[0] in meant:
        return f"{given}: there is no setting {key}; use {ours}"
    return f"{given}: there is no setting {key}{_hint(key, meant)}; {_beside(key, meant, command, arguments)}"


def _unknown_of_hydra(given: str, key: str, meant: DictConfig, command: str, arguments: list[str]) -> str:
    """The message for a key below `hydra`, with those of the chosen launcher or sweeper if it was meant for that."""
    part, hydra = key.rpartition(".")[0], OmegaConf.select(meant, "hydra")
    hint = nearest(key, _dotted(hydra, "hydra.")) if isinstance(hydra, DictConfig) else ""
    node = OmegaConf.select(meant, part) if part in ("hydra.launcher", "hydra.sweeper") else None
    names = [str(name) for name in node or () if not str(name).startswith("_")]
    option = next((word for word in arguments if word.startswith(f"{part.replace('.', '/')}=")), part)
    listed = f"{option} has {', '.join(names)}" if names else f"`diffusion-lab {command} --hydra-help` lists them"
    return f"{given}: there is no setting {key}{hint}; {listed}"


def _other(error: BaseException) -> str:
    text = _first_words(error)
    if error.__cause__ is not None and _first_words(error.__cause__) not in text:
        text = f"{text} {_first_words(error.__cause__)}"
    key = getattr(error, "full_key", None)
    return f"{key}: {text}" if key else text.strip() or type(error).__name__


def _first_words(error: BaseException) -> str:
    """A message in one line, without the fields that OmegaConf adds."""
    return re.split(r" full_key: | object_type=", " ".join(str(error).split()))[0]
