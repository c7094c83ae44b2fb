"""The order of each solver: the slope of ln error against ln steps, on data whose flow has a closed form."""

from __future__ import annotations

import math

import pytest

from diffusion_lab.solvers import DPMSolverPP, Euler, Heun, UniPC
from tests.solvers.flow import MEAN, PATHS, RANGE, V, ends, flow_error, marginal, slope

STEPS = [20, 40, 80]
EDM = (RANGE.rho, RANGE.sigma_min, RANGE.sigma_max)


def start(s: float) -> float:
    return math.hypot(1, s)  # what a solver of `noise_level.py` makes of x_T = 1


class FirstOrder(DPMSolverPP):
    """The control: an extrapolation that is never made."""

    def stepper(self, levels, noise):
        return Euler.stepper(Euler(2), levels, noise)


class WrongFactor(DPMSolverPP):
    """The control: 1/r_k in place of 1/(2 r_k), which extrapolates to the end of the step, not to its middle."""

    def stepper(self, levels, noise):
        step = super().stepper(levels, noise)
        last = []

        def doubled(k, z, x0):
            ratio = levels[k + 1] / levels[k]
            extra = math.log(ratio) / (2 * math.log(levels[k] / levels[k - 1])) if last and ratio else 0.0
            z = step(k, z, x0) + ((1 - ratio) * extra * (x0 - last[0]) if extra else 0.0)
            last[:] = [x0]
            return z

        return doubled


FLOWS = [
    (Euler(2, RANGE, clip=False), 1),
    (DPMSolverPP(2, spacing=RANGE, clip=False), 2),
    (UniPC(2, 1, "bh1", RANGE, clip=False), 2),
    (UniPC(2, 1, "bh2", RANGE, clip=False), 2),
    (UniPC(2, 2, "bh1", RANGE, clip=False), 3),
    (UniPC(2, 2, "bh2", RANGE, clip=False), 3),
    (UniPC(2, 3, "bh1", RANGE, clip=False), 4),
    (UniPC(2, 3, "bh2", RANGE, clip=False), 4),
    (FirstOrder(2, spacing=RANGE, clip=False), 1),
    (WrongFactor(2, spacing=RANGE, clip=False), 1),
]


@pytest.mark.parametrize(
    ("solver", "order"), FLOWS, ids=lambda x: x.name + type(x).__name__ if hasattr(x, "name") else x
)
@pytest.mark.parametrize("path", PATHS)
def test_error_on_the_flow_falls_with_the_order(solver, order, path):
    schedule = PATHS[path]()
    errors = [flow_error(solver.with_steps(n), schedule, start) for n in STEPS]
    assert slope(errors, STEPS) == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("path", PATHS)
def test_samples_of_the_reverse_process_have_mean_and_variance_of_the_data(path):
    schedule, solver = PATHS[path](), DPMSolverPP(2, sde=True, spacing=RANGE, clip=False)
    found = [marginal(solver.with_steps(n), schedule, start) for n in STEPS]
    # The exact mean of D is a martingale, which an extrapolation of a constant keeps.
    assert [mean for mean, _ in found] == pytest.approx([MEAN] * len(STEPS), abs=1e-12)
    errors = [abs(variance - V - ends(schedule)[1] ** 2) for _, variance in found]
    assert errors[-1] < 4e-4 and slope(errors, STEPS) == pytest.approx(2, abs=0.25)


@pytest.mark.parametrize(("path", "s_noise", "order"), [*((path, 1.0, 2) for path in PATHS), ("cosine", 1.2, 0)])
def test_churn_keeps_the_variance_if_its_noise_is_standard(path, s_noise, order):
    schedule = PATHS[path]()
    found = [marginal(Heun(n, *EDM, False, 5.0, 0.105, None, s_noise), schedule, lambda s: s) for n in STEPS]
    assert [mean for mean, _ in found] == pytest.approx([MEAN] * len(STEPS), abs=1e-12)
    errors = [abs(variance - V - ends(schedule)[1] ** 2) for _, variance in found]
    assert slope(errors, STEPS) == pytest.approx(order, abs=0.25)
