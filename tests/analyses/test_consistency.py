"""The likeness of samples from equal noise, where it is known."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from diffusion_lab.analyses import Consistency, Work
from diffusion_lab.analyses.samples.consistency import compared
from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.diffusion import linear
from diffusion_lab.intervals import mean_interval
from diffusion_lab.plotting import style
from diffusion_lab.solvers import DDIM, DDPM, Guided
from diffusion_lab.streams import Streams
from diffusion_lab.training import TrainedModel
from tests.analyses.models import Constant, Optimal, source, trained

DATA = source(size=8)


@dataclass
class Painter(TrainedModel):
    """A model of another kind: its samples are given bytes (M,C,H,W)."""

    painted: torch.Tensor
    folder: Path = Path("painter")
    step: int = 1
    decay = None
    kind = "painters"

    def __post_init__(self):
        self.config, self.config_hash, self.data = {}, "b" * 64, ImageDataModule(DATA, batch_size=8)

    module = property(lambda self: nn.Linear(1, 1))
    device = property(lambda self: torch.device("cpu"))

    def samples(self, ids, seed, solver, batch_size=64):
        return self.painted[list(ids)]

    def fixed_set_loss(self, *given, **more):
        raise NotImplementedError


def grey(*levels):
    """Flat images of these grey levels."""
    return torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8)


def measured(models, tmp_path, seed=0, images=8, **given):
    analysis = Consistency(**({"solver": DDPM(clip=False), "images": images, "batch_size": 5} | given))
    analysis.check_kind(models)
    analysis.check(models)
    return analysis, analysis.run(models, Work(tmp_path, Streams(seed)))


def optimal(error, **given):
    return trained(Optimal(DATA, linear(50), error), DATA, **given)


def test_equation_1_by_hand(tmp_path):
    """Differences of 10, 20 and 40 grey levels; the first model is the reference."""
    paintings = [grey(100, 50), grey(110, 70), grey(60, 40)]
    models = [Painter(one, Path(f"p{k}")) for k, one in enumerate(paintings)]
    analysis, result = measured(models, tmp_path, images=2)
    of = {difference: 10 * np.log10(255**2 / difference**2) for difference in (10, 20, 30, 40, 50)}
    assert of[10] == pytest.approx(28.1308, abs=1e-4)
    c = (of[10] + of[20] + of[40] + of[10]) / 4
    assert result.data["equation_1"] == pytest.approx(c, rel=1e-12)
    assert result.data["paired"][1, 2] == pytest.approx([of[50], of[30]], rel=1e-12)
    assert result.data["shuffled"][0, 1, 0] == pytest.approx(10 * np.log10(255**2 / 30**2), rel=1e-12)  # 100 and 70
    assert f"C is {c:.1f} dB over 3 models with p0 as the reference" in analysis.sentence(result)
    assert "ddpm" not in analysis.sentence(result)  # no diffusion model


def test_a_model_and_itself_agree_infinitely(tmp_path):
    models = [optimal(0.1, folder=name) for name in ("a", "b")]
    analysis, result = measured(models, tmp_path)
    assert np.isposinf(result.data["equation_1"]) and np.isposinf(result.data["paired"]).all()
    assert result.data["equal_images"].tolist() == [1.0] and np.isnan(result.data["half_paired"]).all()
    said = analysis.sentence(result)
    assert "C is infinite over 2 models" in said
    assert "a and b agree to infinite, for 100 % of the pairs of images are equal in every byte" in said
    with style():
        drawn = analysis.figure(result)
    assert [text.get_text() for text in drawn.axes[1].texts] == ["\N{INFINITY}"]
    assert [text.get_text() for text in drawn.axes[2].texts] == ["same", "\N{INFINITY}", "\N{INFINITY}", "same"]


def test_the_noise_and_not_the_model_decides_what_two_good_models_generate(tmp_path):
    """The optimal denoiser of Gaussian data and one with an error of 0.05: more than 3 dB above the control."""
    analysis, result = measured([optimal(0.0, folder="a"), optimal(0.05, folder="b")], tmp_path)
    difference = result.data["paired"][0, 1] - (result.data["shuffled"][0, 1] + result.data["shuffled"][1, 0]) / 2
    interval = mean_interval(difference.tolist())
    assert interval.mean - interval.half_width > 3
    assert result.data["mean_difference"][0] == pytest.approx(interval.mean)
    assert result.data["half_difference"][0] == pytest.approx(interval.half_width)
    said = analysis.sentence(result)
    assert f"{interval.mean:.1f} \N{PLUS-MINUS SIGN} {interval.half_width:.1f} dB above shuffled pairs" in said
    assert f"({result.data['mean_shuffled'][0]:.1f} dB)" in said and "over the 8 images" in said
    # Negative control: one of the models is given the noise of other images.
    first, second = (optimal(0.0).samples(range(8), seed, DDPM(clip=False)) for seed in (0, 1))
    _, other = measured([Painter(first, Path("a")), Painter(second, Path("b"))], tmp_path / "control")
    assert abs(other.data["mean_difference"][0]) < 1
    assert "so they are no more alike than unrelated images" in analysis.sentence(other)


def test_models_that_have_collapsed_do_not_agree_because_of_the_noise(tmp_path):
    black = [Painter(grey(*[0] * 8), Path(name)) for name in "ab"]
    analysis, result = measured(black, tmp_path)
    assert np.isnan(result.data["mean_difference"]).all()
    assert "100 % of the pairs of images are equal in every byte, but some images from other noise are equal too" in (
        analysis.sentence(result)
    )
    with style():
        analysis.figure(result)


def test_no_image_is_its_own_control(tmp_path):
    for seed in range(5):
        _, result = measured([optimal(0.1, folder=f) for f in "ab"], tmp_path / str(seed), seed, solver=DDPM(10, False))
        assert (result.data["permutation"] != np.arange(8)).all()
        assert sorted(result.data["permutation"]) == list(range(8))


def test_seeds_within_groups_and_between_them(tmp_path):
    """Grey levels 100, 104 under one configuration, 140, 148 under the other."""
    models = [
        replace(trained(Constant(), DATA, folder=f"digits-{name}-s{seed}"), config={"sampler": name, "seed": seed})
        for seed in (0, 1)
        for name in ("eps", "x0")
    ]
    levels = [100, 140, 104, 148]
    for model, level in zip(models, levels, strict=True):
        model.samples = lambda ids, *given, level=level: grey(*(level + 10 * i for i in ids))
    analysis, result = measured(models, tmp_path)
    assert result.data["groups"].tolist() == [[0, 0], [1, 1], [0, 1]]

    def decibels(*differences):
        return np.mean([10 * np.log10(255**2 / d**2) for d in differences])

    expected = [decibels(4), decibels(8), decibels(40, 48, 36, 44)]
    assert result.data["mean_paired"] == pytest.approx(expected, rel=1e-12)
    assert result.data["reference"][:2] == pytest.approx(expected[:2]) and np.isnan(result.data["reference"][2])
    assert result.facts["models"] == ["eps run 1", "x0 run 1", "eps run 2", "x0 run 2"]
    said = analysis.sentence(result)
    assert f"2 runs of eps agree to C = {expected[0]:.1f} dB, " in said
    assert f"eps and x0 agree to {expected[2]:.1f} dB, " in said
    assert said.count("less square difference than unrelated images") == 1 and said.endswith(" (ddpm-full-unclipped).")
    # Beside a model of another kind, the solver is said to be that of the diffusion models.
    beside, mixed = measured([*models, Painter(grey(*range(8)), Path("painter"))], tmp_path / "mixed")
    assert beside.sentence(mixed).endswith("(diffusion models by ddpm-full-unclipped).")


def test_the_reference_is_the_first_model_of_a_group():
    paired = np.arange(9.0).reshape(3, 3, 1) + np.arange(9.0).reshape(3, 3, 1).transpose(1, 0, 2)
    found = compared([[1, 0, 2]], paired, np.zeros((3, 3, 1)))
    assert found["reference"].tolist() == [(4 + 12) / 2] and found["mean_paired"].tolist() == [(4 + 12 + 8) / 3]


@pytest.mark.parametrize(
    ("models", "solver", "message"),
    [
        ([optimal(0.0)], DDPM(), "run=run must be at least two models to compare; use"),
        ([optimal(0.0), trained(Constant(), Digits())], DDPM(), "run=run must be models of the same images; use one"),
        ([optimal(0.0), optimal(0.1)], DDIM(steps=60), r"analysis.solver.steps=60 must"),
        (
            [optimal(0.0), optimal(0.1)],
            Guided(DDIM()),
            "run=run must be trained with label dropout for analysis.solver",
        ),
    ],
)
def test_what_cannot_be_compared(models, solver, message):
    with pytest.raises(ValueError, match=message):
        Consistency(solver).check(models)


@pytest.mark.parametrize(("name", "value"), [("images", 1), ("batch_size", 0)])
def test_arguments_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"^{name}={value} must be an integer >="):
        Consistency(DDPM(), **{name: value})
