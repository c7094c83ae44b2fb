"""The contract of analyses over every file of conf/analysis: a new yaml is tested without an edit here."""

import inspect
import itertools

import numpy as np
import pytest
from hydra.utils import instantiate
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from diffusion_lab.analyses import Analysis, PerTimestep, Result, RewardVariance
from diffusion_lab.cli.checks.annotations import SPECIAL
from diffusion_lab.cli.checks.nodes import check_nodes
from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.targets import Trust, resolve
from diffusion_lab.testing import check_analysis
from tests.analyses.small import NAMES, composed, small


@pytest.mark.slow  # each is computed four times
@pytest.mark.parametrize("name", NAMES)
def test_every_analysis_keeps_the_contract(name):
    check_analysis(lambda: instantiate(small(name), _convert_="all"))


@pytest.mark.parametrize("name", NAMES)
def test_every_file_composes_and_has_the_arguments_in_their_order(name):
    cfg = composed(name)
    assert not [*check_nodes(cfg, Trust())]
    target = resolve("analysis", cfg.analysis["_target_"], Trust())
    node = OmegaConf.load(conf_dir() / "analysis" / f"{name}.yaml")
    keys = [key for key in node if key not in (*SPECIAL, "defaults")]
    assert keys == [key for key in inspect.signature(target).parameters if key in keys]


class Plain(Analysis):
    """Calls the network twice, one task each."""

    counter = itertools.count()

    def run(self, trained, work):
        def one(i):
            _, x0, _ = trained[0].test_images(2)
            noise = work.normal(tuple(x0.shape), i)
            t = x0.new_full((2,), i).long()
            return {"loss": trained[0].denoiser.head_losses(x0, noise, t).detach().numpy()}

        pieces = work.map("losses", one, [(i,) for i in range(4)])
        return Result({"loss": np.stack([piece["loss"] for piece in pieces])}, {})

    def figure(self, result):
        return Figure()

    def sentence(self, result):
        return f"The loss is {result.data['loss'].mean():.3g}."


class HiddenClock(Plain):
    """Other numbers each time."""

    def run(self, trained, work):
        data, facts = super().run(trained, work)
        return Result({"loss": data["loss"] + next(self.counter)}, facts)


class ForgetsItsData(Plain):
    """Draws what no file holds."""

    def run(self, trained, work):
        self.noted = 3
        return super().run(trained, work)

    def sentence(self, result):
        return f"The number is {getattr(self, 'noted', 0)}."


class OnePiece(Plain):
    """Does everything again after a kill."""

    def run(self, trained, work):
        folder, work.folder = work.folder, work.folder / str(next(self.counter))
        found = super().run(trained, work)
        work.folder = folder
        return found


class Says(Plain):
    def sentence(self, result):
        return " "


class StaysInTraining(Plain):
    def run(self, trained, work):
        found = super().run(trained, work)
        trained[0].denoiser.train()
        return found


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (HiddenClock, "other bytes when repeated: data.npz, facts.json"),
        (ForgetsItsData, "other bytes from its own data.npz: facts.json"),
        (OnePiece, "computes everything again"),
        (Says, "sentence is empty"),
        (StaysInTraining, "in training mode"),
    ],
)
def test_the_contract_notices_broken_analyses(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_analysis(broken)


def test_an_analysis_that_keeps_the_contract_passes():
    check_analysis(Plain)
    check_analysis(lambda: PerTimestep(images=2, every=300))
    check_analysis(lambda: RewardVariance([[0], [700]], images=2, noises=2))
