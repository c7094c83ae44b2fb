"""Which arguments name places is read from signatures, so a new one cannot be forgotten."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from diffusion_lab.cli.checks.annotations import described
from diffusion_lab.cli.conf_folder import conf_dir
from diffusion_lab.cli.definitions import Definition, find
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.path_arguments import path_arguments, written_paths
from diffusion_lab.cli.targets import NAMES, Trust, resolve
from diffusion_lab.cli.untrusted_run import is_typed, paths_read_outside, paths_written_outside, without_outside_paths
from tests.cli.test_source_signature import SHIPPED

OURS = [target for target in SHIPPED if target.startswith("diffusion_lab.")]
NAMED_LIKE_A_PLACE = re.compile(r"(^|_)(dir|directory|dirpath|folder|path|root|file|filename|curve|reference|weights)$")
OPENED = ("Path", "open", "glob.glob", "os.path.join", "np.load")
NO_PLACES = {  # arguments that look like one, with what they are
    ("diffusion_lab.metrics.ClassifierFeatures", "weights"): "the name of a file of the package",
    ("diffusion_lab.data.GaussianMixture", "weights"): "numbers",
    ("diffusion_lab.timesteps.LearnedBeta", "reward_weights"): "numbers",
}
TEXTS = {  # arguments of Lightning's classes that take a text and name no place
    "lightning.pytorch.Trainer": {
        *("accelerator", "strategy", "devices", "precision", "fast_dev_run", "max_time", "gradient_clip_algorithm"),
        *("profiler", "plugins", "val_check_interval"),
    },
    "lightning.pytorch.strategies.DDPStrategy": {"process_group_backend", "start_method"},
    "lightning.pytorch.profilers.SimpleProfiler": set(),
    "lightning.pytorch.profilers.AdvancedProfiler": set(),
    "lightning.pytorch.callbacks.DeviceStatsMonitor": set(),
}


def arguments(definition: Definition) -> Iterator[tuple[ast.arg, ast.AST]]:
    """The arguments of each constructor of a class and of those that it extends, with the class."""
    for one in definition.lineage():
        body = [one.node] if isinstance(one.node, ast.FunctionDef) else one.node.body
        for node in body:
            if isinstance(node, ast.FunctionDef) and (node is one.node or node.name == "__init__"):
                args = node.args
                yield from ((arg, one.node) for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs])


def is_used_as_a_place(name: str, annotation: str, inside: ast.AST) -> bool:
    """Whether it is annotated or named like a path, or opened as it is or as the attribute of that name."""
    if "Path" in annotation or (NAMED_LIKE_A_PLACE.search(name) and "Callable" not in annotation):
        return True
    calls = [node for node in ast.walk(inside) if isinstance(node, ast.Call) and ast.unparse(node.func) in OPENED]
    return any(ast.unparse(given) in (name, f"self.{name}", f"str({name})") for call in calls for given in call.args)


@pytest.mark.parametrize("target", OURS)
def test_every_argument_that_is_used_as_a_place_is_known(target: str) -> None:
    definition = find(target)
    assert definition is not None
    known = path_arguments(target)
    for argument, inside in arguments(definition):
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        if is_used_as_a_place(argument.arg, annotation, inside) and (target, argument.arg) not in NO_PLACES:
            assert argument.arg in known, f"annotate {argument.arg} of {target} with one of diffusion_lab.arguments"


def test_the_walk_sees_what_is_not_annotated(tmp_path: Path) -> None:
    """The control of the test above."""
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nfrom diffusion_lab.arguments import WrittenPath\n"
        "class Base:\n    def __init__(self, given: 'WrittenPath'): ...\n"
        "class A(Base):\n    def __init__(self, x, y: str, z: str | Path, log_dir=None, n: int = 3):\n"
        "        self.y = y\n        Path(self.y)\n        open(x)\n"
    )
    definition = find("mine.A", (tmp_path,))
    assert definition is not None
    found = [
        a.arg for a, node in arguments(definition) if is_used_as_a_place(a.arg, ast.unparse(a.annotation or a), node)
    ]
    assert found == ["x", "y", "z", "log_dir", "given"]
    assert path_arguments("mine.A", (tmp_path,)) == {"given": "written"}  # which A's own constructor may pass on


def takes_a_text(hint: Any) -> bool:
    members = [hint, *typing.get_args(hint)]
    return any(member in (str, Path, Any) for member in members) or any(map(takes_a_text, typing.get_args(hint)))


@pytest.mark.parametrize("target", NAMES)
def test_the_places_of_other_peoples_classes_are_stated(target: str) -> None:
    """A new version with another argument for a text needs a decision: `targets.NAMES`, or TEXTS above."""
    hints, parameters = described(resolve("x", target, Trust())).hints, inspect.signature(resolve("x", target, Trust()))
    given = {name for name in parameters.parameters if name in hints and takes_a_text(hints[name])}
    given -= {name for name, one in parameters.parameters.items() if one.kind is one.VAR_KEYWORD}
    assert given - set(NAMES[target].places) <= TEXTS[target]
    assert set(NAMES[target].places) <= set(parameters.parameters)


def test_optimizers_have_no_places() -> None:
    for path in (conf_dir() / "optimizer").glob("*.yaml"):
        assert "path" not in path.read_text() and "dir:" not in path.read_text()


PROFILER = {"_target_": "lightning.pytorch.profilers.SimpleProfiler"}
FOLDER = {"_target_": "diffusion_lab.data.ImageFolder", "root": "/data"}
CIFAR = {"_target_": "diffusion_lab.data.CIFAR10", "root": "/data"}
OUTSIDE: list[tuple[dict[str, Any], list[str]]] = [
    (FOLDER, []),
    (FOLDER | {"cache_dir": None}, []),
    (FOLDER | {"cache_dir": "run/cache"}, []),
    (FOLDER | {"cache_dir": "cache"}, ["cache_dir"]),
    (FOLDER | {"cache_dir": "/elsewhere"}, ["cache_dir"]),
    (FOLDER | {"cache_dir": "run/../x"}, ["cache_dir"]),
    (FOLDER | {"cache_dir": "~nobody-here/x"}, ["cache_dir"]),
    (FOLDER | {"cache_dir": "a\0b"}, ["cache_dir"]),
    (CIFAR, []),
    (CIFAR | {"download": True}, ["root"]),
    (CIFAR | {"download": True, "root": "run/data"}, []),
    (PROFILER | {"dirpath": "run", "filename": "profile"}, []),
    (PROFILER | {"dirpath": "run/link"}, ["dirpath"]),
    (PROFILER | {"dirpath": "memory://run"}, ["dirpath"]),
    (PROFILER | {"dirpath": "run", "filename": "../profile"}, ["filename"]),
    (PROFILER | {"filename": "/etc/profile"}, ["filename"]),
    ({"_target_": "lightning.pytorch.Trainer", "default_root_dir": "lightning_logs"}, ["default_root_dir"]),
    ({"_target_": "diffusion_lab.loggers.JsonlLogger", "directory": "elsewhere"}, ["directory"]),
    ({"_target_": "diffusion_lab.metrics.ClassifierFeatures", "weights": "digits"}, []),
    ({"_target_": 5, "directory": "elsewhere"}, []),
]


@pytest.mark.parametrize(("node", "outside"), OUTSIDE)
def test_what_would_be_written_outside_a_folder(node: dict[str, Any], outside: list[str], in_folder: Path) -> None:
    Path("run").mkdir()
    Path("run/link").symlink_to(in_folder)
    assert [name for name, _ in written_paths(node, Path("run"))] == outside
    nested = {"dataset": {"source": node}, "list": [1, {"a": node}]}
    found = [key for key, _ in paths_written_outside(nested, Path("run"))]
    assert found == [f"{place}.{name}" for place in ("dataset.source", "list.1.a") for name in outside]
    assert not [*paths_written_outside(without_outside_paths(nested, Path("run")), Path("run"))]
    assert without_outside_paths(nested, Path("run")) == nested or outside


def test_reading_a_run_leaves_places_to_their_defaults_and_downloads_nothing(in_folder: Path) -> None:
    kept = without_outside_paths({"source": FOLDER | {"cache_dir": "/elsewhere"}}, Path("run"))
    assert kept == {"source": FOLDER}
    assert without_outside_paths(CIFAR | {"download": True}, Path("run")) == CIFAR | {"download": False}


READ: list[tuple[dict[str, Any], list[str]]] = [
    (FOLDER, ["/data"]),
    (FOLDER | {"root": "photos"}, ["photos"]),  # without a slash
    (FOLDER | {"root": "data/images"}, []),  # the default of an option
    (FOLDER | {"root": "run/images", "cache_dir": "elsewhere"}, []),
    (FOLDER | {"root": "run/images/../../photos"}, ["run/images/../../photos"]),
    (FOLDER | {"root": "run/link"}, ["run/link"]),
    (CIFAR, ["/data"]),
    (CIFAR | {"root": "data/cifar10"}, []),
    ({"_target_": "diffusion_lab.data.HuggingFace", "path": ["a.parquet", "run/b.parquet"]}, ["a.parquet"]),
    ({"_target_": "diffusion_lab.timesteps.EqualLossSlots", "loss_curve": [1, 2]}, []),
    ({"_target_": "diffusion_lab.timesteps.EqualLossSlots", "loss_curve": "mine.json"}, ["mine.json"]),
]


@pytest.mark.parametrize(("node", "outside"), READ)
def test_what_would_be_read_outside_a_folder(node: dict[str, Any], outside: list[str], in_folder: Path) -> None:
    Path("run/images").mkdir(parents=True)
    Path("run/link").symlink_to(in_folder)
    nested = {"dataset": {"source": node}, "list": [1, {"a": node}]}
    assert [value for _, value in paths_read_outside(nested, Path("run"))] == 2 * outside


def test_no_link_leads_out_of_a_place_in_the_folder(in_folder: Path) -> None:
    Path("run/images/a").mkdir(parents=True)
    Path("mine.png").touch()
    Path("run/images/a/x.png").symlink_to(Path("mine.png").resolve())
    for root in ("run/images", "run/images/*"):
        with pytest.raises(ConfigError, match="outside of the folder"):
            list(paths_read_outside(FOLDER | {"root": root}, Path("run")))


def test_what_the_user_types_beside_a_run_may_lead_outside() -> None:
    words = ["+dataset.source.cache_dir=/scratch", "seed=1", "dataset={source: {root: /data}}", "dataset=image_folder"]
    assert is_typed("dataset.source.cache_dir", "/scratch", words) and is_typed("dataset.source.root", "/data", words)
    assert not is_typed("dataset.source.root", "/other", words) and not is_typed("dataset.source", "/scratch", words)
