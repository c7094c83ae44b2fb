"""The folder of the yaml files, the name of a run, and whether two configurations are the same run.

A run is a function of (config, seed, step). Its folder is therefore named by a readable slug and a hash of the part of
the configuration that affects its results (`runs.identity`), so that the same command finds its unfinished run.
Devices, microbatches and memory layout are not in the hash: they affect only the rounding of sums, no random number,
and a run that changes them continues as the same run, equal up to rounding instead of bit by bit. A key that was added
after a release is left out at its default (`runs.identity.ADDED_LATER`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict

from diffusion_lab.cli.conf_folder import conf_dir as conf_dir
from diffusion_lab.cli.conf_folder import read_by_libyaml
from diffusion_lab.cli.hydra_version import add_resolver, initialized
from diffusion_lab.cli.init_weights import checksum_of_run, init_identity, sha256_of
from diffusion_lab.cli.options.defaults import implied_options, stated
from diffusion_lab.cli.processes import microbatches
from diffusion_lab.distribution_file import numbers_or_fault
from diffusion_lab.runs.identity import dropped, effective
from diffusion_lab.saved_config import architecture_or_fault

UNNAMED_PRECISION = "32-true"  # every other one is a word of the run's name

# Named in the slug only when they differ.
DEFAULT_CHOICES = {
    "model": "diffusion",
    "task": "image_generation",
    "prediction": "eps",
    "preconditioning": "none",
    "weighting": "unit",
}

read_by_libyaml()  # before anything is composed


def without(cfg: DictConfig | dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The keys that count (`runs.identity`) of a configuration, or of the plain one of a record, resolved, with some
    top-level values `changed` before that.

    The result is the same while a configuration is composed, before its run folder is known, and when it is read back
    from a run: a dict of plain values, which takes a tenth of the time if it has no references.
    """
    content = cast(dict[str, Any], OmegaConf.to_container(cfg) if isinstance(cfg, DictConfig) else cfg) | changed
    content.pop("hydra", None)
    folders = content.get("paths")
    written = folders.get("run_dir") if isinstance(folders, dict) else None
    if isinstance(folders, dict):
        content["paths"] = {key: f"<{key}>" for key in folders}
    resolved = _resolved(content)
    # Of `cfg`, where paths are places.
    start = init_identity(plain_value(cfg, "init_from") if isinstance(cfg, DictConfig) else cfg.get("init_from"))
    if isinstance(start, dict):
        resolved["init_from"] = start
    return effective(resolved, written if isinstance(written, str) and "${" not in written else None)


# A resolver whose result depends on more than the configuration, such as a file.
_IMPURE_REFERENCE = re.compile(r"\$\{(?!microbatches:|share:|at_most:)[^${}]*:")
_RESOLVED: dict[str, dict[str, Any]] = {}  # what was resolved by this process, or by the launcher that it is a copy of


def _resolved(content: dict[str, Any]) -> dict[str, Any]:
    """Plain values with their references resolved; the same values are resolved once, because the record, the launcher
    and the checks hash one configuration five times, and resolving it takes nine tenths of a hash."""
    text = repr(content)
    if "${" not in text:
        return content
    if text in _RESOLVED:
        return copy.deepcopy(_RESOLVED[text])
    resolved = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(content), resolve=True))
    if not _IMPURE_REFERENCE.search(text):
        if len(_RESOLVED) >= 256:
            _RESOLVED.clear()
        _RESOLVED[text] = copy.deepcopy(resolved)
    return resolved


def plain_value(cfg: DictConfig, key: str) -> Any:
    """The value of a key, resolved, as dicts, lists and scalars."""
    value = OmegaConf.select(cfg, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration without Hydra's own node, as dicts, lists and scalars only."""
    found = {}
    for key in cfg:
        if key == "hydra":  # which may refer to what is not known yet
            continue
        value = "???" if OmegaConf.is_missing(cfg, key) else cfg[key]
        found[str(key)] = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    return found


def config_hash(cfg: DictConfig, **changed: Any) -> str:
    """SHA-256 of the canonical JSON of the keys that affect the results of the run, 64 hex digits; `changed` as in
    `without`."""
    content = dropped(without(cfg, **changed))
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def group_hash(cfg: DictConfig) -> str:
    """`config_hash` with the seed set to 0 before references are resolved: equal for all seeds of a method."""
    return config_hash(cfg, seed=0)


def hydra_of(cfg: DictConfig) -> Any:
    """Hydra's node of the whole config, else of the running job; None outside a job."""
    if OmegaConf.select(cfg, "hydra.runtime.choices") is not None:
        return cfg.hydra
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get() if HydraConfig.initialized() else None


def config_folders(cfg: DictConfig | None = None) -> list[str]:
    """Folders given with --config-dir to this command, or to the one that composed `cfg` with Hydra's node."""
    hydra = hydra_of(OmegaConf.create() if cfg is None else cfg)
    sources = [] if hydra is None else OmegaConf.select(hydra, "runtime.config_sources") or []
    return [source.path for source in sources if source.provider == "command-line"] or list(_GIVEN.get())


_GIVEN: ContextVar[tuple[str, ...]] = ContextVar("given", default=())


@contextmanager
def given_config_dirs(folders: Sequence[str]) -> Iterator[None]:
    """Inside, `config_folders` has these, for a command that Hydra does not run."""
    token = _GIVEN.set(tuple(str(Path(folder).resolve()) for folder in folders))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def choices_of(cfg: DictConfig) -> dict[str, Any]:
    """The option of each group: from the whole config, else from the running job."""
    hydra = hydra_of(cfg)
    return {} if hydra is None else dict(hydra.runtime.choices)


def method_name(cfg: DictConfig) -> str:
    """The method's name, with the model if it is another than the method's; or the sampler's with the other options
    that differ from the default."""
    choices = choices_of(cfg)
    if choices.get("method"):
        return "-".join([str(choices["method"]), *_not_implied(hydra_of(cfg), "model")])
    words = {choices.get("sampler", "sampler"): None}  # each once: task=gan sets model=gan
    for group, default in DEFAULT_CHOICES.items():
        if choices.get(group, default) != default:
            words[choices[group]] = None
    return "-".join(map(str, filter(None, words)))


def beside_method(cfg: DictConfig) -> list[str]:
    """Schedule, prediction and auxiliary losses if they differ from those of the preset, the method and train.yaml."""
    hydra = hydra_of(cfg)
    if hydra is None:
        return []
    choices = hydra.runtime.choices
    # Without a method, `method_name` has the prediction.
    found = _not_implied(hydra, *(("schedule", "prediction") if choices.get("method") else ("schedule",)))
    # By their names: Hydra records no choice where several of a family are chosen.
    losses = cfg.get("auxiliary")
    if losses and choices.get("auxiliary") not in implied_options(hydra, "auxiliary"):
        own = stated(hydra, "auxiliary")
        found += [str(name) for name, node in losses.items() if node is not None and name not in own]
    return found


def _not_implied(hydra: Any, *groups: str) -> list[str]:
    """The options of the groups that differ from those of the preset, the method and train.yaml."""
    found = []
    for group in groups:
        option = hydra.runtime.choices.get(group)
        if option is not None and option not in implied_options(hydra, group):
            found.append(str(option))
    return found


def run_name(cfg: DictConfig) -> str:
    """Readable part of the run folder's name, e.g. `digits-logit_normal-s0`, `digits-ddpm-cosine-bf16-mixed-s0`."""
    dataset, precision = str(choices_of(cfg).get("dataset", "data")), cfg.get("precision") or UNNAMED_PRECISION
    rounded = [str(precision)] if precision != UNNAMED_PRECISION else []
    words = [dataset, method_name(cfg), *beside_method(cfg), *rounded, f"s{cfg.get('seed')}"]
    return re.sub(r"[^\w.+-]+", "-", "-".join(words))


def sweep_name(cfg: DictConfig) -> str:
    """Folder of a sweep: `name`, else the experiment, else the data set."""
    return sweep_name_of(cast(Mapping[Any, Any], cfg), choices_of(cfg))


def sweep_name_of(config: Mapping[Any, Any], choices: Mapping[str, Any]) -> str:
    """`sweep_name` from a configuration as plain values and the options of its groups."""
    name = config.get("name") or choices.get("experiment") or f"sweep-{choices.get('dataset', 'data')}"
    return re.sub(r"[^\w.+-]+", "-", str(name))


def register_resolvers() -> None:
    """Register `${run_name:}`, `${run_hash:}` (8 hex digits), `${sweep_name:}`, `${microbatches:}`, `${share:x,n}`,
    `${at_most:m,n}`, the smaller of two numbers, `${numbers_of:path}`, `${architecture_of:folder}`,
    `${checksum_of:run}`, `${sha256_of:file}`.

    May be called twice.
    """
    for name, function in {
        "run_name": run_name,
        "run_hash": lambda cfg: config_hash(cfg)[:8],
        "sweep_name": sweep_name,
    }.items():
        add_resolver(name, lambda *, _root_, f=function: f(_root_))
    add_resolver("microbatches", microbatches)
    add_resolver("share", share)
    add_resolver("at_most", lambda most, value: min(most, value))  # OmegaConf 2.4 reads signatures
    add_resolver("numbers_of", numbers_or_fault)
    add_resolver("architecture_of", architecture_or_fault)
    add_resolver("checksum_of", checksum_of_run)
    add_resolver("sha256_of", sha256_of)


def with_value(cfg: DictConfig, key: str, value: Any) -> DictConfig:
    """A copy of a configuration in which a key has another value."""
    changed = cfg.copy()
    OmegaConf.set_readonly(changed, False)
    OmegaConf.update(changed, key, value)
    return changed


def share(fraction: float, steps: int) -> int:
    """A fraction of a number of steps, at least 1: `${share:0.1,${max_steps}}`."""
    return max(1, round(fraction * steps))


def compose_train(overrides: Sequence[str], run_dir: Path, config_dirs: Sequence[str] = ()) -> DictConfig:
    """The configuration of `diffusion-lab train OVERRIDES`, with Hydra's node, for a run in `run_dir`: for programs
    that train without the command line. It is not checked. `config_dirs` have the user's own yaml files."""
    from hydra import compose

    register_resolvers()
    places = ",".join(f"file://{Path(folder).resolve()}" for folder in config_dirs)
    own = [f"hydra.searchpath=[{places}]"] if config_dirs else []
    with initialized():
        cfg = compose("train", overrides=[*own, *overrides], return_hydra_config=True)
    with open_dict(cfg):
        cfg.paths = {"root": str(run_dir.parent), "run_dir": str(run_dir)}
    return cfg
