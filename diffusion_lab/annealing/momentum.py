"""Annealings of Adam's beta1. With tau = min(1, step/total_steps) and b0 the first value, Demon's rule is

    beta/(1 - beta) = (1 - tau) b0/(1 - b0),     beta(tau) = b0 (1 - tau)/(1 - b0 tau)

In PyTorch's Adam with a changing beta1, the momentum m <- beta m + (1 - beta) g has the factor 1 - beta, so a
decreasing beta increases the share of the newest gradient. The bias correction is 1 - beta^step with the current beta,
where 1 - prod_i beta_i would be exact. The two differ only in the first steps, about 50 for b0 = 0.8, when beta has
hardly changed. At beta = 0 the correction is 1 and the update is Adam's without momentum, so nothing diverges.
"""

from __future__ import annotations

from diffusion_lab.annealing.rate import Annealing, Constant, Hyper
from diffusion_lab.arguments import check_choice, check_flag, check_integer, check_number

SOURCES = ("floored", "unfloored")


class ConstantBeta1(Annealing):
    """A constant beta1 that replaces the optimizer's; the learning rate is that of `then`.

    Args:
        beta1: Adam's beta1 throughout, in [0, 1).
        then: the annealing of the learning rate; None for a constant one.
    """

    def __init__(self, beta1: float, then: Annealing | None = None) -> None:
        self.beta1 = check_number("beta1", beta1, "[)", 0, 1, "use 0.8 as MDLRC begins, or 0.9 as usual")
        self.then = then or Constant()

    def __call__(self, step: int) -> Hyper:
        return self.then(step)._replace(beta1=self.beta1)


class Demon(Annealing):
    """beta1 = beta(tau) from b0 down to 0, lr_factor = 1 (Chen & Kyrillidis 2019, decaying momentum).

    Differs from the paper's Demon-Adam, whose momentum m <- g + beta m has no factor 1 - beta: along a constant
    gradient its steps shrink to 1 - b0 of their first length, while under PyTorch's Adam they keep it. Demon-Adam at
    rate eta is `MDLRC(total_steps, beta1=b0, floor=None)` at the base rate eta/(1 - b0).

    Args:
        total_steps: optimizer steps until beta1 = 0, >= 1; the length of the run.
        beta1: b0, beta1 at step 0, in (0, 1).
    """

    def __init__(self, total_steps: int, beta1: float = 0.9) -> None:
        self.total_steps = check_integer("total_steps", total_steps, 1, "give a number of optimizer steps")
        self.beta1 = check_number("beta1", beta1, "()", 0, 1, "use 0.9 for the published setting")

    def __call__(self, step: int) -> Hyper:
        return Hyper(1.0, decayed(self.beta1, step, self.total_steps))


class MDLRC(Annealing):
    """Momentum decay with learning-rate compensation ("Why diffusion models are stable and how to make them faster",
    equations 9 and 10):

        beta1     = max(floor, beta(tau))
        lr_factor = (1 - b0)/(1 - beta1)

    Above the floor lr_factor = 1 - b0 tau exactly: the compensation is a linear decay. With b0 = 0.8 the floor 0.4 is
    reached at tau = 5/6, and the rate stays at 1/3 of the base; without it they end at 0 and 1/5. tau is the fraction
    of the whole run, so runs of different length have different schedules at every step.

    Controls: `compensate=False` is the momentum decay alone, `decay=False` the compensation alone at beta1 = b0.

    Differs from the paper's text, which announces a higher learning rate: its equation 10, which is what is computed
    here, lowers it. The paper does not say whether the floor acts on the compensation too: `lr_from` does.

    Args:
        total_steps: optimizer steps of the whole run, >= 1.
        beta1: b0, beta1 at step 0, in (0, 1).
        floor: least beta1, in [0, b0); None for 0. The paper's is 0.4.
        compensate: whether the learning rate compensates for beta1; False for momentum decay alone.
        decay: whether beta1 decays; False for the compensation alone, with beta1 constant at b0.
        lr_from: the beta1 that the compensation follows: floored, or unfloored for 1 - b0 tau to the end.
    """

    def __init__(
        self,
        total_steps: int,
        beta1: float = 0.8,
        floor: float | None = 0.4,
        compensate: bool = True,
        decay: bool = True,
        lr_from: str = "floored",
    ) -> None:
        self.total_steps = check_integer("total_steps", total_steps, 1, "give a number of optimizer steps")
        self.beta1 = check_number("beta1", beta1, "()", 0, 1, "use 0.8 for the published setting")
        cure = "it must be below beta1, 0.4 in the paper; use null for none"
        self.floor = 0.0 if floor is None else check_number("floor", floor, "[)", 0, self.beta1, cure)
        self.compensate = check_flag("compensate", compensate, "use true for the published setting")
        self.decay = check_flag("decay", decay, "use true for the published setting")
        self.lr_from = check_choice("lr_from", lr_from, SOURCES, "use floored")

    def __call__(self, step: int) -> Hyper:
        unfloored = decayed(self.beta1, step, self.total_steps)
        floored = max(unfloored, self.floor)
        followed = floored if self.lr_from == "floored" else unfloored
        factor = (1 - self.beta1) / (1 - followed) if self.compensate else 1.0
        return Hyper(factor, floored if self.decay else self.beta1)


def decayed(beta1: float, step: int, total_steps: int) -> float:
    """beta(tau), from beta1 at step 0 to 0 at total_steps and after."""
    tau = min(1.0, step / total_steps)
    return beta1 * (1 - tau) / (1 - beta1 * tau)
