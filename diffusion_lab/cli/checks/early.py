"""The arguments of all parts, checked before torch is imported, which takes seconds.

Signatures are read from source text, so an error in a key or a type is reported at once. Whether a class is allowed and
fits its place is the first question and needs the class itself (`nodes.py`); this check therefore speaks only where
every part is of the class that the yaml file of its option has, and reads the arguments that differ from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from diffusion_lab.cli.checks.annotations import argument_faults
from diffusion_lab.cli.checks.settings import PRESETS, part_groups
from diffusion_lab.cli.checks.source_signature import source_signature
from diffusion_lab.cli.conf_folder import METRIC, conf_dir, yaml_file
from diffusion_lab.cli.config import choices_of
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.options.defaults import defaults
from diffusion_lab.runs.identity import parts


def check_arguments(cfg: DictConfig) -> list[ConfigError] | None:
    """Errors in the arguments of all parts; None if `nodes.py` might find others, which are reported together."""
    content, shipped = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=False)), _shipped(choices_of(cfg))
    nodes = [(path, node) for path, node in parts(content) if not path.startswith(f"{METRIC}.")]  # read from files
    for group, default in part_groups().items():
        node = content.get(group)
        family = isinstance(node, dict) and ("_target_" in node or {dict}.issuperset(map(type, node.values())))
        if group != "hydra" and not (family or (node is None and default is None)):
            return None
    if any([path not in shipped or node["_target_"] != shipped[path]["_target_"] for path, node in nodes]):
        return None
    changed = [(path, node) for path, node in nodes if node != shipped[path]]  # tests check the package's files
    return [ConfigError(text) for path, node in changed for text in _faults(path, node, shipped[path])]


def _faults(path: str, node: dict[str, Any], shipped: dict[str, Any]) -> list[str]:
    changed = frozenset(key for key, value in node.items() if key not in shipped or shipped[key] != value)
    signature = source_signature(node["_target_"], only=changed)
    return argument_faults(node, path, signature) if signature is not None else []


def _shipped(choices: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The parts that the package's yaml files of these options have, by their places in the configuration."""
    top, read = conf_dir(), []
    for key, option in choices.items():
        group, _, place = key.partition("@")
        place = "" if group in PRESETS else place or group.replace("/", ".")
        files = [top / group / f"{option}.yaml"] if option and not key.startswith("hydra/") else []
        for file in files:  # grows by those that a file extends
            content = yaml_file(file) if file.is_file() else {}  # else it is the user's own
            for entry in defaults(file) if "defaults" in content else ():
                if entry.option is None:
                    files.append((top if entry.from_top else top / group) / f"{entry.group}.yaml")
            read.append((place, content))
    found: dict[str, dict[str, Any]] = {}
    for path, node in parts({str(number): content for number, (_, content) in enumerate(read)}):
        number, _, inside = path.partition(".")
        found.setdefault(f"{read[int(number)][0]}.{inside}".strip("."), node)
    return found
