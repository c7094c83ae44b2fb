"""Other defaults in train.yaml change no method, no experiment and no job of a table.

Each states `base: ddpm`, the parts that it leaves open. Here `conf` is copied with other defaults, and what is composed
from the copy must have the names and hashes of the record, `tests/golden/compositions.json`. `scale` and `debug` set
the length of a run and do not choose its parts, so they follow the defaults.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli import hydra_version
from diffusion_lab.cli.checks.settings import part_groups
from diffusion_lab.cli.config import conf_dir, plain
from diffusion_lab.cli.options import defaults
from diffusion_lab.cli.table_files import table_names
from tests.conf.test_options import options
from tests.golden import compare
from tests.golden.compositions import WHOLE_SCALE, composed, identity, table_identities

STORED = compare.stored(compare.COMPOSITIONS_FILE)
PRESETS = [f"{group}/{name}.yaml" for group in ("method", "experiment") for name in options(group)]
METHODS = [f"method={name}" for name in options("method")]
# For each experiment one job; the methods that they cross are those above.
FIRST_JOBS = list({words.split()[0]: words for words in reversed(STORED["jobs"])}.values())
# Parts that are the run's own with every method: images, network, what is measured, and the machine.
THE_RUNS_OWN = {"model", "dataset", "network", "metrics", "callbacks", "logger", "trainer", "task"}
OTHER = {
    "order": "curriculum",
    "schedule": "sigmoid",
    "time": "position",
    "prediction": "x0",
    "variance": "fixed_small",
    "preconditioning": "fdm",
    "coupling": "immiscible",
    "weighting": "p2",
    "auxiliary": "dispersive",
    "sampler": "speed",
    "optimizer": "another_adam",
    "annealing": "cosine",
    "averaging": "power_function",
    "solver": "heun",
}
ANOTHER_ADAM = "defaults: [adam, _self_]\nlr: 2.0e-3\nbetas: [0.9, 0.99]\n"


def with_other_defaults(folder: Path) -> Path:
    """A copy of conf whose train.yaml has OTHER parts and another limit of the gradient."""
    copied = shutil.copytree(conf_dir(), folder / "conf")
    (copied / "optimizer" / "another_adam.yaml").write_text(ANOTHER_ADAM)
    text = (copied / "train.yaml").read_text()
    for pattern, new in {rf"  - {group}: \w+": f"  - {group}: {name}" for group, name in OTHER.items()}.items():
        text, found = re.subn(pattern, new, text)
        assert found == 1, pattern
    text, found = re.subn(r"\ngradient_clip: 1.0", "\ngradient_clip: 0.5", text)
    assert found == 1
    (copied / "train.yaml").write_text(text)
    return copied


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is composed is composed from this copy."""
    copied = with_other_defaults(tmp_path)
    monkeypatch.setattr(defaults, "conf_dir", lambda: copied)
    monkeypatch.setattr(hydra_version, "conf_dir", lambda: copied)
    return copied


def record(words: str) -> list[str]:
    """Name and hashes of a method or of an experiment's job."""
    return (STORED["options"] | STORED["jobs"])[words]


def differences(words: list[str]) -> list[str]:
    """Those that do not compose to their record."""
    return [one for one in words if identity(one.split()) != record(one)]


def without_a_base(conf: Path) -> list[str]:
    """Files that state neither a base nor that they are GANs, and include none that does."""

    def stated(name: str) -> bool:
        text = (conf / name).read_text()
        included = re.findall(r"^  - (?:override )?/(method|experiment)(?:/|: )(\S+)$", text, re.MULTILINE)
        own = re.search(r"^  - override /(base: ddpm|task: gan)$", text, re.MULTILINE)
        return own is not None or any(stated(f"{group}/{name}.yaml") for group, name in included)

    return [name for name in PRESETS if not stated(name)]


def test_every_method_and_every_experiment_states_its_base() -> None:
    assert without_a_base(conf_dir()) == []


def test_the_base_has_every_part_that_is_not_the_runs_own() -> None:
    entries = OmegaConf.load(conf_dir() / "base" / "ddpm.yaml").defaults
    named = {key.removeprefix("override /") for entry in entries for key in entry}
    assert named == set(part_groups()) - THE_RUNS_OWN == OTHER.keys()


def test_the_other_defaults_change_a_run_without_a_base_alone(other: Path) -> None:
    assert identity([])[0] == "digits-speed-x0-fdm-p2-s0" and identity([]) != record("")
    assert identity(["base=ddpm"]) == record("model=diffusion")
    assert identity(["method=speed", "schedule=cosine"])[0] == "digits-speed-cosine-s0"  # what is typed wins


@pytest.mark.parametrize("words", ["method=ddpm", "method=speed", "method=iddpm", "method=mdlrc", "method=biggan"])
def test_a_method_is_the_same_under_other_defaults(words: str, other: Path) -> None:
    assert differences([words]) == []


def test_a_sweep_without_a_method_is_the_same_in_every_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["experiment=demo", "sampler=stratified", "seed=1"]
    before = plain(composed(words))
    copied = with_other_defaults(tmp_path)
    monkeypatch.setattr(defaults, "conf_dir", lambda: copied)
    monkeypatch.setattr(hydra_version, "conf_dir", lambda: copied)
    assert plain(composed(words)) == before


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("method/speed.yaml", "  - override /base: ddpm\n", "method=speed"),
        ("experiment/demo.yaml", "  - override /base: ddpm\n", next(w for w in FIRST_JOBS if "=demo " in w)),
        ("base/ddpm.yaml", "  - override /solver: ddim\n", "method=learned_beta"),
        ("base/ddpm.yaml", "gradient_clip: 1.0", "method=clts"),
        ("task/gan.yaml", "  - override /annealing: constant\n", "method=biggan"),
        ("schedule/linear.yaml", "beta_end: 0.02\n", "method=ddpm"),
    ],
)
def test_negative_control_a_line_that_is_missing_is_noticed(file: str, line: str, words: str, other: Path) -> None:
    text = (other / file).read_text()
    assert text.count(line) == 1
    (other / file).write_text(text.replace(line, ""))
    assert differences([words]) == [words]
    if "base: ddpm" in line:
        assert file in without_a_base(other)


@pytest.mark.pages
@pytest.mark.parametrize("words", [METHODS, FIRST_JOBS], ids=["methods", "experiments"])
def test_every_method_and_every_experiment_is_the_same_under_other_defaults(words: list[str], other: Path) -> None:
    assert differences(words) == []


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_job_of_an_experiment_is_the_same_under_other_defaults(other: Path) -> None:
    assert differences(list(STORED["jobs"])) == []


TABLES = table_names([conf_dir()])
SMALL = ("adaptive_beta/table3", "clts_mdlrc/table1", "equal_loss_slots/table1")  # GANs, U-ViT and presets of rows


@pytest.mark.pages
@pytest.mark.parametrize("table", [pytest.param(t, marks=[] if t in SMALL else pytest.mark.exhaustive) for t in TABLES])
def test_what_reproduce_trains_is_the_same_under_other_defaults(table: str, other: Path) -> None:
    stored = {job: then for job, then in STORED["tables"].items() if job.startswith(f"{table} {WHOLE_SCALE} ")}
    assert stored and table_identities(f"{table} {WHOLE_SCALE}") == stored
