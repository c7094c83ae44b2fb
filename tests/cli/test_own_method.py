"""What `train` and `show` say of a sampler, weighting or schedule of the user's own before the first step."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from diffusion_lab.analyses import Work
from diffusion_lab.cli.checks.method import weight_fault
from diffusion_lab.cli.config import compose_train, conf_dir
from diffusion_lab.cli.main import main
from diffusion_lab.cli.metric_files import misnamed, with_metrics
from diffusion_lab.cli.own_code import part_of
from diffusion_lab.cli.run_parts import RunParts
from diffusion_lab.diffusion import Weighting, linear
from diffusion_lab.failure import WrongResult
from diffusion_lab.streams import Streams

MODULE = """
import torch
from diffusion_lab.diffusion import Weighting
from diffusion_lab.metrics import Metric
from diffusion_lab.timesteps import FixedSampler, TimestepSampler


class Bright(Metric):
    name, better, needs = "bright", "neither", frozenset({"samples"})

    def __call__(self, given):
        return 0.0


class Good(FixedSampler):
    def __init__(self, num_timesteps):
        super().__init__(torch.ones(num_timesteps).double())


class Ten(Good):
    def __init__(self, num_timesteps):
        super().__init__(10)


class Table(TimestepSampler):
    def probabilities(self, step):
        return torch.full((2, 500), 1e-3).double()


class Raises(Good):
    def __init__(self, num_timesteps):
        super().__init__(num_timesteps)
        num_timesteps / 0


class Converts(Good):
    def __init__(self, num_timesteps):
        super().__init__(int("many"))


class SetUp(Good):
    def setup(self, image_shape):
        raise KeyError("my own bug")


class Later(TimestepSampler):
    def probabilities(self, step):
        p = torch.full((self.num_timesteps,), 1 / self.num_timesteps).double()
        return p.nothing if step else p


class NoSampler:
    def __init__(self, num_timesteps):
        pass


def made(num_timesteps: int) -> Good:
    return Good(num_timesteps).nothing


class Misspelt(Weighting):
    def x0_weight(self, snr, step):
        return snr.clampp(max=5)


class NotANumber(Weighting):
    def x0_weight(self, snr, step):
        return torch.where(snr < 0.1, torch.nan, snr)


class Negative(Weighting):
    def x0_weight(self, snr, step):
        return -snr


class Three(Weighting):
    def native_weight(self, snr, scale, step):
        return snr[:3]
"""
STEPS = "num_timesteps: ${schedule.num_timesteps}\n"
FILES = {
    "sampler/few": "_target_: method_parts.Good\n",
    "sampler/key": f"_target_: method_parts.Good\nnum_timestep: 5\n{STEPS}",
    "sampler/notarget": STEPS,
    "metric/bright": "_target_: method_parts.Bright\n",
    "metric/brightness": "_target_: method_parts.Bright\n",
}
FILES |= {
    f"sampler/{name.lower()}": f"_target_: method_parts.{name}\n{STEPS}"
    for name in ("Ten", "Table", "Raises", "Converts", "SetUp", "Later", "NoSampler", "made")
}
FILES |= {
    f"weighting/{name.lower()}": f"_target_: method_parts.{name}\n"
    for name in ("Misspelt", "NotANumber", "Negative", "Three")
}
TRAIN = ("base=ddpm", "metrics=none", "trainer.accelerator=cpu", "network.base_channels=8", "logger=none")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "mine" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "method_parts.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def line(code: str) -> int:
    return MODULE.splitlines().index(f"        {code}") + 1


@pytest.mark.parametrize("command", ["train", "show"])
@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (["sampler=few"], ["sampler.num_timesteps is missing, and method_parts.Good needs it; set sampler.num_timest"]),
        (
            ["sampler=key"],
            ["sampler.num_timestep=5: Good has no argument num_timestep (did you mean 'num_timesteps'?)"],
        ),
        (
            ["sampler=notarget"],
            ["sampler._target_ is missing; add `_target_: file.Class` to {home}/mine/sampler/notar"],
        ),
        (["sampler=nosampler"], ["sampler._target_=method_parts.NoSampler must be a TimestepSampler"]),
        (["sampler=ten"], ["sampler=ten must have num_timesteps=1000, as it is given, and has 10"]),
        (
            ["sampler=table"],
            ["sampler=table must give a probability for each of the 1000 timesteps, and gives (2, 500)"],
        ),
        (["weighting=three"], ["weighting=three: method_parts.Three.native_weight must return a tensor of the shape"]),
        (["weighting=notanumber"], ["weighting=notanumber must give finite weights >= 0, and gives nan at timestep"]),
        (["weighting=negative"], ["weighting=negative must give finite weights >= 0, and gives -"]),
        (["sampler=ten", "weighting=negative"], ["sampler=ten must have", "weighting=negative must give finite"]),
        (
            ["sampler=raises"],
            [
                "sampler cannot be used: ZeroDivisionError: division by zero; correct sampler=raises "
                f"(method_parts.Raises), {{home}}/method_parts.py line {line('num_timesteps / 0')}"
            ],
        ),
        (
            ["sampler=converts"],
            [
                "sampler: invalid literal for int() with base 10: 'many'; correct sampler=converts "
                "(method_parts.Converts), {home}/method_parts.py line "
            ],
        ),
        (
            ["sampler=made"],
            [
                "sampler cannot be used: AttributeError: 'Good' object has no attribute 'nothing'; correct "
                "sampler=made (method_parts.made), {home}/method_parts.py line "
            ],
        ),
        (
            ["weighting=misspelt"],
            [
                "weighting cannot be used: AttributeError: 'Tensor' object has no attribute 'clampp'; correct "
                "weighting=misspelt (method_parts.Misspelt), {home}/method_parts.py line "
            ],
        ),
    ],
)
def test_a_mistake_in_ones_own_part_has_the_same_sentence_in_train_and_show(
    home: Path, command: str, words: list[str], sentences: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = TRAIN if command == "train" else ("base=ddpm",)
    assert main([command, "--config-dir", "mine", *more, *words]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if "config error" in line]
    assert len(said) == len(sentences), said
    for one, sentence in zip(said, sentences, strict=True):
        assert one.startswith(f"config error: {sentence.format(home=home)}"), said
    assert not list(home.glob("runs/*"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["sampler=setup"],
            "sampler cannot be used: KeyError: 'my own bug'; correct sampler=setup (method_parts.SetUp)",
        ),
        (["sampler=later", "--step", "3"], "has no attribute 'nothing'; correct sampler=later (method_parts.Later)"),
    ],
)
def test_show_names_the_line_of_an_error_beyond_the_checks(
    home: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "--config-dir", "mine", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said and said.count("config error") == 1 and "Traceback" not in said


def test_a_metric_has_the_name_of_its_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The yaml files of the package as well, which trainings and evaluations check."""
    quick = [word for word in TRAIN if word != "metrics=none"]
    words = ["train", "--config-dir", "mine", *quick, "metrics=default", "dry_run=true"]
    assert main([*words, "metrics.names=[fid,brightness]"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "config error: metrics.names=[brightness] must be the name in its class, and Bright.name is 'bright'; rename "
        "the file to bright.yaml, or let the class have name = 'brightness'"
    )
    cfg = compose_train(["metrics.names=[bright]"], home / "run")
    for names in ([file.stem for file in (conf_dir() / "metric").glob("*.yaml")], []):
        cfg.metrics.names = names
        complete = with_metrics(cfg)
        assert misnamed(complete, RunParts(complete)["metrics"].metrics) == []


class Scaled(Weighting):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor_of_snr = factor

    def x0_weight(self, snr, step):
        return snr * self.factor_of_snr * (snr > 1)


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (1.0, None),  # 0 leaves timesteps out
        (0.0, "weighting=Scaled must give some timestep a weight above 0, and gives 0 to all"),
        (-1.0, "weighting=Scaled must give finite weights >= 0, and gives -"),
        (1e37, "weighting=Scaled must give finite weights >= 0, and gives inf at timestep 0"),  # in float32
    ],
)
def test_the_weights_that_may_be_trained_with(factor: float, sentence: str | None) -> None:
    snr = linear(1000).snr
    found = weight_fault(Scaled(factor), snr, torch.ones_like(snr))
    assert found is None if sentence is None else found is not None and found.startswith(sentence)


ANALYSIS = """
class Halves:
    def run(self, trained, work):
        return work.map("halves", lambda: 0.5, [()])
"""


def test_a_wrong_result_of_a_function_names_the_part_and_the_line_that_called_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halves_part.py").write_text(ANALYSIS)
    monkeypatch.syspath_prepend(str(tmp_path))
    part = importlib.import_module("halves_part").Halves()
    with pytest.raises(WrongResult) as caught:
        part.run([], Work(tmp_path, Streams(0)))
    cfg = DictConfig({"analysis": {"_target_": "halves_part.Halves"}})
    assert part_of(caught.value, cfg) == f"analysis (halves_part.Halves), {tmp_path}/halves_part.py line 4"
