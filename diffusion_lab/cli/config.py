"""Where the configuration lives, what a run is called, and when two configurations are the same run.

A run is a function of (config, seed, step). Its folder is therefore named by a readable slug and by a hash of
the part of the configuration that can change a number of the run: the same command finds its unfinished run
again, and no clock is involved. What only says where, on which devices, in which portions, in which layout of the
memory and how loudly a run takes place is left out of the hash (`NOT_IN_HASH`). Devices, portions and layout change the
last bits of a sum, nothing that is drawn; a run in which they change in the middle goes on as the same run, equal to
rounding instead of to the bit. A key that is younger than runs without it is left out at its default (`ADDED_LATER`).
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict

from diffusion_lab.cli.added_later import dropped, filled
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.processes import microbatches
from diffusion_lab.cli.stated import stated
from diffusion_lab.runs.names import RECORD

# Top-level keys and dotted paths that cannot change a number of the run, but for the order in which it is added up.
NOT_IN_HASH = (
    "hydra",
    "paths",
    "name",
    "resume",
    "allow",
    "anew",
    "hang_timeout_min",
    "dry_run",
    "cost",
    "most_samples",  # what it makes of the evaluation's number of samples is in the hash
    "objective",
    "threads",
    "logger",
    "extras",
    "callbacks.progress",
    "callbacks.heartbeat",
    "dataset.num_workers",
    "images_per_device",
    "accumulate",
    "dataset.accumulate",
    "trainer.accumulate_grad_batches",
    "channels_last",
    "compile",
    "trainer.accelerator",
    "trainer.devices",
    "trainer.strategy",
    "trainer.num_nodes",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.profiler",
    "trainer.num_sanity_val_steps",
    "trainer.default_root_dir",
)
# A new key of a yaml file stands here with its default, so that runs made before it keep their names and go on: by the
# `_target_` of the key's node wherever that stands, or by "" and the path from the top. Values are as in a resolved
# configuration, and stay for good: a default that is changed later makes another run.
ADDED_LATER: dict[str, dict[str, Any]] = {"diffusion_lab.solvers.Guided": {"steps": None}}
# Named in the slug only when they differ.
DEFAULT_CHOICES = {"task": "image_generation", "prediction": "eps", "preconditioning": "none", "weighting": "unit"}


def conf_dir() -> Path:
    """The folder of the yaml files: inside the package in a wheel, beside it in a checkout.

    Raises:
        FileNotFoundError: neither exists, so the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "conf", package.parent / "conf"):
        if (candidate / "train.yaml").is_file():
            return candidate
    raise FileNotFoundError(f"no conf folder in {package} or beside it; reinstall diffusion-lab")


def read_back(saved: Any) -> DictConfig:
    """The configuration that run.json or a checkpoint holds, with the defaults of keys that are younger than the run.

    A run writes it with all references resolved. One that holds `${...}` was not written by a run, and is refused
    before anything resolves it: a reference can carry a `_target_` past the eyes of who checks the values.

    Raises:
        ConfigError: it is no configuration, or holds a reference.
    """
    if not isinstance(saved, dict) or not saved or not all(isinstance(key, str) for key in saved):
        raise ConfigError(f"{RECORD} must hold a configuration under `config`; it is damaged or of another program")
    if found := next(references(saved), None):
        raise ConfigError(f"{found} must be a plain value: the configuration in a run folder holds no reference")
    if not isinstance(saved.get("dataset"), dict) or not isinstance(saved.get("network"), dict):
        raise ConfigError(f"{RECORD} must hold a data set and a network; it is damaged or of another program")
    return DictConfig(filled(saved, ADDED_LATER))


def references(node: Any, path: str = "") -> Iterator[str]:
    """`key=value` for every `${` and every `???` in the keys and values of plain containers."""
    if isinstance(node, dict):
        for key, value in node.items():
            if "${" in str(key):
                yield f"{path}{key}"
            yield from references(value, f"{path}{key}.")
    elif isinstance(node, list | tuple):
        for i, value in enumerate(node):
            yield from references(value, f"{path}{i}.")
    elif isinstance(node, str) and ("${" in node or node == "???"):
        yield f"{path.rstrip('.')}={node}"


def without(cfg: DictConfig, keys: tuple[str, ...] = NOT_IN_HASH) -> DictConfig:
    """A resolved copy without the given dotted keys, in which the run folder reads `<run_dir>`.

    So it is for a configuration that is being composed, whose run folder is not known yet, and for one that was read
    back from a run, in which the folder is written out.
    """
    return DictConfig(_without(cfg, keys))


def _without(cfg: DictConfig, keys: tuple[str, ...], **changed: Any) -> dict[str, Any]:
    """`without` as plain values, with some top-level values `changed` before references are resolved."""
    content = cast(dict[str, Any], OmegaConf.to_container(cfg)) | changed
    content.pop("hydra", None)
    folders = content.get("paths")
    written = folders.get("run_dir") if isinstance(folders, dict) else None
    if isinstance(folders, dict):
        content["paths"] = {key: f"<{key}>" for key in folders}
    resolved = cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(content), resolve=True))
    if isinstance(written, str) and "${" not in written:
        resolved = _replace_folder(resolved, written)
    for key in keys:
        *parents, last = key.split(".")
        node: Any = resolved
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)
    return resolved


def _replace_folder(node: Any, folder: str) -> Any:
    """`folder` and what lies in it as `<run_dir>`, in all values below a node."""
    if isinstance(node, dict):
        return {key: _replace_folder(value, folder) for key, value in node.items()}
    if isinstance(node, list):
        return [_replace_folder(value, folder) for value in node]
    if isinstance(node, str) and (node == folder or node.startswith(f"{folder}/")):
        return f"<run_dir>{node[len(folder) :]}"
    return node


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration without Hydra's own node, as dicts, lists and scalars only."""
    node = copy.deepcopy(cfg)
    OmegaConf.set_readonly(node, False)
    with open_dict(node):
        node.pop("hydra", None)
    return cast(dict[str, Any], OmegaConf.to_container(node, resolve=True))


def _digest(cfg: DictConfig, **changed: Any) -> str:
    content = dropped(_without(cfg, NOT_IN_HASH, **changed), ADDED_LATER)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def config_hash(cfg: DictConfig) -> str:
    """SHA-256 of the canonical JSON of what can change a number of the run, 64 hex digits."""
    return _digest(cfg)


def group_hash(cfg: DictConfig) -> str:
    """`config_hash` with the seed set to 0 before references are resolved: equal for the seeds of one method."""
    return _digest(cfg, seed=0)


def hydra_of(cfg: DictConfig) -> Any:
    """Hydra's own node: of the whole config, else of the running job; None outside of one."""
    if OmegaConf.select(cfg, "hydra.runtime.choices") is not None:
        return cfg.hydra
    from hydra.core.hydra_config import HydraConfig

    return HydraConfig.get() if HydraConfig.initialized() else None


def config_folders(cfg: DictConfig | None = None) -> list[str]:
    """Folders given with --config-dir, to this command or to the one that composed `cfg` with Hydra's node."""
    hydra = hydra_of(OmegaConf.create() if cfg is None else cfg)
    sources = [] if hydra is None else OmegaConf.select(hydra, "runtime.config_sources") or []
    return [source.path for source in sources if source.provider == "command-line"]


def choices_of(cfg: DictConfig) -> dict[str, Any]:
    """Which option each group has: from the whole config, else from the running job."""
    hydra = hydra_of(cfg)
    return {} if hydra is None else dict(hydra.runtime.choices)


def method_name(cfg: DictConfig) -> str:
    """What the run compares: the method's name, or the sampler's with what else differs from the default."""
    choices = choices_of(cfg)
    if choices.get("method"):
        return str(choices["method"])
    parts = [str(choices.get("sampler", "sampler"))]
    parts += [str(choices[g]) for g, default in DEFAULT_CHOICES.items() if choices.get(g, default) != default]
    return "-".join(parts)


def beside_method(cfg: DictConfig) -> list[str]:
    """Schedule and prediction where they are neither what the preset, the method nor train.yaml says."""
    hydra, choices = hydra_of(cfg), choices_of(cfg)
    if hydra is None:
        return []
    # Without a method a prediction is in `method_name` already.
    groups = ("schedule", "prediction") if choices.get("method") else ("schedule",)
    return [str(choices[g]) for g in groups if g in choices and choices[g] not in stated(hydra, choices, g, conf_dir())]


def run_name(cfg: DictConfig) -> str:
    """Readable part of the run folder's name, e.g. `digits-logit_normal-s0`, `digits-ddpm-cosine-s0`."""
    dataset = str(choices_of(cfg).get("dataset", "data"))
    words = [dataset, method_name(cfg), *beside_method(cfg), f"s{cfg.get('seed')}"]
    return re.sub(r"[^\w.+-]+", "-", "-".join(words))


def sweep_name(cfg: DictConfig) -> str:
    """Folder of a sweep: `name`, else the experiment, else the data set."""
    choices = choices_of(cfg)
    name = cfg.get("name") or choices.get("experiment") or f"sweep-{choices.get('dataset', 'data')}"
    return re.sub(r"[^\w.+-]+", "-", str(name))


def register_resolvers() -> None:
    """Give yaml files `${run_name:}`, `${run_hash:}` (8 hex digits), `${sweep_name:}`, `${microbatches:}`,
    `${share:x,n}` and `${at_most:m,n}`, the smaller of two numbers. May be called twice.
    """
    for name, function in {
        "run_name": run_name,
        "run_hash": lambda cfg: config_hash(cfg)[:8],
        "sweep_name": sweep_name,
    }.items():
        OmegaConf.register_new_resolver(name, lambda *, _root_, f=function: f(_root_), replace=True)
    OmegaConf.register_new_resolver("microbatches", microbatches, replace=True)
    OmegaConf.register_new_resolver("share", share, replace=True)
    OmegaConf.register_new_resolver("at_most", min, replace=True)


def share(fraction: float, steps: int) -> int:
    """A fraction of a number of steps, at least 1: `${share:0.1,${max_steps}}`."""
    return max(1, round(fraction * steps))


def compose_train(overrides: Sequence[str], run_dir: Path) -> DictConfig:
    """What `diffusion-lab train OVERRIDES` composes, with Hydra's node, for a run in `run_dir`: for programs that train
    without the command line. It is not checked."""
    from hydra import compose, initialize_config_dir

    register_resolvers()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("train", overrides=list(overrides), return_hydra_config=True)
    with open_dict(cfg):
        cfg.paths = {"root": str(run_dir.parent), "run_dir": str(run_dir)}
    return cfg
