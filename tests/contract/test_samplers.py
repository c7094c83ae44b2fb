"""The sampler contract over every file of conf/sampler: a new yaml is tested without an edit here."""

import tempfile
from pathlib import Path

import pytest
from hydra import compose
from hydra.utils import instantiate

from diffusion_lab.cli.config import conf_dir, register_resolvers
from diffusion_lab.cli.hydra_version import initialized
from diffusion_lab.testing import check_sampler
from diffusion_lab.timesteps import Uniform

NAMES = sorted(path.stem for path in Path(conf_dir(), "sampler").glob("*.yaml"))


def make(name: str, steps: int):
    register_resolvers()
    with initialized():
        # A short run, so that what is done a number of times in a run happens in the few updates of the checks.
        short = ["max_steps=40", f"schedule.num_timesteps={steps}"]
        cfg = compose("train", overrides=[f"sampler={name}", *short])
    if "path" in cfg.sampler:  # a sampler that reads a file
        file = Path(tempfile.mkdtemp()) / "p.txt"
        file.write_text("\n".join(str(t + 1) for t in range(steps)))
        cfg.sampler.path = str(file)
    return lambda: instantiate(cfg.sampler, _convert_="all")


@pytest.mark.parametrize("name", NAMES)
def test_every_sampler_keeps_the_contract(name):
    check_sampler(make(name, steps=40))


def test_all_samplers_are_covered():
    assert {"uniform", "logit_normal", "loss_second_moment", "stratified"} <= set(NAMES)


class WrongMarginal(Uniform):
    """Says uniform, draws the lower half."""

    def quantile(self, u, step):
        return super().quantile(u, step) // 2


class HiddenClock(Uniform):
    """Uses the global random numbers."""

    def quantile(self, u, step):
        import torch

        return torch.randint(self.num_timesteps, u.shape)


class ChangesInDraw(Uniform):
    """Counts its draws in a buffer."""

    def __init__(self, num_timesteps):
        import torch

        super().__init__(num_timesteps)
        self.register_buffer("count", torch.zeros(()))

    def draw(self, x0, context):
        self.count += 1
        return super().draw(x0, context)


class Forgets(Uniform):
    """Follows what it observed, in an attribute that no checkpoint has."""

    shift = 0

    def quantile(self, u, step):
        return (super().quantile(u, step) + self.shift) % self.num_timesteps

    def observe(self, record, context):
        self.shift += 1


class DependsOnSplit(Uniform):
    """Draws local numbers in place of rows of the global ones."""

    def draw(self, x0, context):
        from diffusion_lab.timesteps import Draw

        t = self.quantile(context.global_uniform(len(x0))[: len(x0)], context.step)
        return Draw(t, self.weight(t, context.step))


class OwnWeights(Uniform):
    """Another objective by its weights."""

    def weight(self, t, step):
        return (t + 1).float()


class NegativeWeights(OwnWeights):
    def weight(self, t, step):
        return super().weight(t, step) - 2


class WrongReweight(OwnWeights):
    """Says that its loss is unbiased for the uniform objective."""

    def __init__(self, num_timesteps):
        super().__init__(num_timesteps)
        self.reweight = True


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (NegativeWeights, "NegativeWeights.weight must be finite and >= 0, and is -1.0 to 38.0"),
        (WrongReweight, r"WrongReweight.weight is not 1, or 1/\(T p_t\) with reweight"),
        (WrongMarginal, "do not follow its probabilities"),
        (HiddenClock, "used the global random numbers"),
        (ChangesInDraw, "changed persistent state"),
        (Forgets, "after a resume"),
        (DependsOnSplit, "how the batch is split"),
    ],
)
def test_the_contract_notices_broken_samplers(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_sampler(lambda: broken(num_timesteps=40))


def test_a_sampler_may_have_an_objective_of_its_own():
    check_sampler(lambda: OwnWeights(40))


class TenSteps(Uniform):
    """Ten timesteps, whatever is asked for."""

    def __init__(self, num_timesteps):
        super().__init__(10)


def test_a_sampler_of_another_number_of_timesteps_than_it_is_given_is_found():
    check_sampler(lambda: Uniform(10), rows=8, updates=2, num_timesteps=10)
    with pytest.raises(AssertionError, match="TenSteps must have num_timesteps=100, as it is given, and has 10"):
        check_sampler(lambda: TenSteps(100), num_timesteps=100)
