"""Weightings against the published table, in all three spaces; one answer has one loss and one gradient."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.diffusion import (
    EDM,
    P2,
    VLB,
    X0,
    ConstantEps,
    ConstantV,
    ConstantX0,
    Debiased,
    Epsilon,
    FDMWarmup,
    MaxSNR,
    MinSNR,
    SoftMinSNR,
    TruncSNR,
    Uncertainty,
    Unit,
    V,
    Weighting,
    cosine,
    linear,
    quadratic,
)

PREDICTIONS = [Epsilon(), X0(), V()]
SCHEDULES = [linear(), quadratic(), cosine(), cosine(4000)]
SNR = linear().snr


def weights(weighting: Weighting, snr: torch.Tensor = SNR, step: int = 0) -> list[torch.Tensor]:
    """Weights on the eps-, the x0- and the v-loss."""
    return [weighting.native_weight(snr, p.native_scale(snr), step).detach() for p in PREDICTIONS]


# Name, weighting, and its weights on the eps- and the x0-loss as the papers write them, from R = SNR and s = 1/sqrt(R).
ONE = torch.ones(())
TABLE = [
    ("eps", ConstantEps(), lambda R, s: ONE, lambda R, s: R),
    ("x0", ConstantX0(), lambda R, s: 1 / R, lambda R, s: ONE),
    ("v", ConstantV(), lambda R, s: 1 + 1 / R, lambda R, s: 1 + R),
    ("trunc", TruncSNR(), lambda R, s: torch.maximum(R, ONE) / R, lambda R, s: torch.maximum(R, ONE)),
    ("min", MinSNR(5.0), lambda R, s: torch.minimum(R, 5 * ONE) / R, lambda R, s: torch.minimum(R, 5 * ONE)),
    ("soft", SoftMinSNR(4.0), lambda R, s: 4 / (4 + R), lambda R, s: 4 * R / (4 + R)),
    ("max", MaxSNR(5.0), lambda R, s: torch.maximum(R, 5 * ONE) / R, lambda R, s: torch.maximum(R, 5 * ONE)),
    ("p2", P2(1.0, 0.5), lambda R, s: 1 / (1 + R).sqrt(), lambda R, s: R / (1 + R).sqrt()),
    ("p2_k", P2(2.0, 1.0), lambda R, s: 1 / (2 + R), lambda R, s: R / (2 + R)),
    ("edm", EDM(0.5), lambda R, s: 1 + s**2 / 0.25, lambda R, s: (s**2 + 0.25) / (0.5 * s) ** 2),
    ("debiased", Debiased(), lambda R, s: s, lambda R, s: R.sqrt()),
    ("fdm", FDMWarmup(), lambda R, s: torch.minimum(ONE, 5 * s**2), lambda R, s: torch.minimum(s**-2, 5 * ONE)),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize(("weighting", "eps", "x0"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_closed_forms_for_each_prediction(weighting, eps, x0, schedule):
    snr, s, a = schedule.snr, schedule.noise_level, schedule.alphas_cumprod
    w_eps, w_x0, w_v = weights(weighting, snr)  # 1/(1 + SNR) = 1 - A
    torch.testing.assert_close(w_eps, eps(snr, s).double().expand_as(snr), rtol=1e-9, atol=0)
    torch.testing.assert_close(w_x0, x0(snr, s).double().expand_as(snr), rtol=1e-9, atol=0)
    torch.testing.assert_close(w_v, (x0(snr, s) * (1 - a)).double().expand_as(snr), rtol=1e-9, atol=0)


def test_constant_eps_and_v_in_the_others_space():
    schedule = cosine()
    a = schedule.alphas_cumprod
    torch.testing.assert_close(weights(ConstantEps(), schedule.snr)[2], a)
    torch.testing.assert_close(weights(ConstantV(), schedule.snr)[0], 1 / a)


def test_p2_of_one_and_one_is_the_noise_share():
    schedule = linear()
    torch.testing.assert_close(weights(P2(), schedule.snr)[0], 1 - schedule.alphas_cumprod)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_p2_without_gamma_is_plain_ddpm_to_the_bit(schedule):
    snr = schedule.snr.float()
    loss = torch.rand(len(snr), 1, generator=torch.Generator().manual_seed(0))
    scale = Epsilon().native_scale(snr)[:, None]
    assert torch.equal(P2(gamma=0.0)(loss, snr, scale, 0), Unit()(loss, snr, scale, 0))


def test_min_snr_with_a_large_gamma_is_the_eps_loss():
    eps, _, v = weights(MinSNR(gamma=1e9))
    assert torch.equal(eps, torch.ones_like(SNR))
    torch.testing.assert_close(v, linear().alphas_cumprod)


def test_unit_leaves_every_native_loss_alone():
    loss = torch.rand(1000)
    for p in PREDICTIONS:
        assert torch.equal(Unit()(loss[:, None], SNR.float(), p.native_scale(SNR.float())[:, None], 0), loss)


# -- the bound ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_vlb_is_the_coefficient_of_ho_et_al(schedule, dtype):
    # c_t = b^2/(2 V a (1-A)) with V the posterior's variance, from the betas alone.
    b = schedule.betas
    A = (1 - b).cumprod(0)
    before = torch.cat([torch.ones(1, dtype=torch.float64), A[:-1]])
    variance = b * (1 - before) / (1 - A)
    variance[0] = variance[1]
    c = b**2 / (2 * variance * (1 - b) * (1 - A))
    got = weights(VLB(schedule), schedule.snr.to(dtype))[0]
    assert got.dtype == dtype
    # For float32 the SNR it divides by is rounded too; no timestep may be taken for its neighbour.
    torch.testing.assert_close(got.double(), c, rtol=1e-6 if dtype == torch.float32 else 1e-9, atol=0)
    snr = A / (1 - A)
    torch.testing.assert_close(got[1:].double(), 0.5 * (snr[:-1] - snr[1:]) / snr[1:], rtol=1e-6, atol=0)


def test_vlb_reference_values():
    # c_t does not depend on the choice of V at t = 0, where Vp_1 stands in: 0.917 for the linear schedule.
    for schedule, first in ((linear(), 0.917), (quadratic(), 0.987), (cosine(), 0.947)):
        assert weights(VLB(schedule), schedule.snr)[0][0].item() == pytest.approx(first, abs=5e-4)


# -- warm-up of the weight ------------------------------------------------------------------------------------------


def test_fdm_clamp_grows_a_hundredfold_and_goes():
    huge = torch.tensor([1e9], dtype=torch.float64)
    weighting = FDMWarmup(start=5.0, end=500.0, warmup_steps=400)
    clamps = [weighting.x0_weight(huge, step).item() for step in (0, 100, 200, 399, 400, 10**6)]
    expected = [5.0, 5 * 100**0.25, 50.0, 500 / 100 ** (1 / 400), 1e9, 1e9]
    assert clamps == pytest.approx(expected)
    # The released code multiplies by 100^(1/warmup) per step.
    c = 5.0
    for step in range(3):
        assert weighting.x0_weight(huge, step).item() == pytest.approx(c)
        c *= 100 ** (1 / 400)


# -- one answer, one loss, one gradient -----------------------------------------------------------------------------

SCHEDULE = linear()


def learned() -> Uncertainty:
    weighting = Uncertainty(EDM())
    torch.nn.init.normal_(weighting.coefficients, std=0.05, generator=torch.Generator().manual_seed(1))
    return weighting


@pytest.mark.parametrize(
    "weighting", [*(row[1] for row in TABLE), VLB(SCHEDULE), learned()], ids=lambda w: type(w).__name__
)
def test_equal_gradients_for_converted_predictions(weighting):
    t = torch.tensor([0, 10, 258, 600, 999])
    generator = torch.Generator().manual_seed(0)
    x0, eps, guess = (torch.randn(5, 1, 4, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    a = SCHEDULE.alphas_cumprod[t].reshape(-1, 1, 1, 1)
    alpha, sigma, snr = a.sqrt(), (1 - a).sqrt(), SCHEDULE.snr[t]
    x_t = alpha * x0 + sigma * eps
    gradients = []
    for p in PREDICTIONS:
        answer = guess.clone().requires_grad_()  # one x0 estimate, said in three ways
        out = p.target(answer, (x_t - alpha * answer) / sigma, alpha, sigma)
        parts = p.parts(out, x0, eps, alpha, sigma, snr)
        loss = weighting(parts.loss, snr, parts.scale, 0)
        gradients.append(torch.autograd.grad(loss.sum(), answer)[0])
    assert gradients[1].abs().max() > 0
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(gradients[2], gradients[1], rtol=1e-8, atol=1e-12)


def test_a_weighting_of_ones_own_needs_one_method():
    class Own(Weighting):
        def x0_weight(self, snr, step):
            return snr.clamp(min=1)

    got = Own()(torch.ones(2, 1), torch.tensor([4.0, 0.5]), torch.tensor([[4.0], [0.5]]), 0)
    assert got.tolist() == [1.0, 2.0]


def test_unit_says_that_it_has_no_x0_weight():
    with pytest.raises(NotImplementedError, match="native_weight"):
        Unit().x0_weight(SNR, 0)


# -- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [MinSNR, SoftMinSNR, MaxSNR])
@pytest.mark.parametrize("gamma", [0, -5.0, float("nan"), "5"])
def test_bad_gamma_is_named(make, gamma):
    with pytest.raises(ValueError, match=r"^gamma=.* must lie in \(0, inf\); use 5.0"):
        make(gamma)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: P2(gamma=-1.0), r"^gamma=-1.0 must lie in \[0, inf\); use 1.0"),
        (lambda: P2(k=0.0), r"^k=0.0 must lie in \(0, inf\); use 1.0"),
        (lambda: EDM(sigma_data=0.0), r"^sigma_data=0.0 must lie in \(0, inf\); use 0.5"),
        (lambda: FDMWarmup(start=0.0), r"^start=0.0 must lie in \(0, inf\); use 5.0"),
        (lambda: FDMWarmup(start=5.0, end=4.0), r"^end=4.0 must lie in \[5, inf\); it must reach start"),
        (lambda: FDMWarmup(warmup_steps=0), r"^warmup_steps=0 must be an integer >= 1"),
        (lambda: Uncertainty(Unit(), num_features=0), r"^num_features=0 must be an integer >= 1; use 128"),
        (lambda: Uncertainty(Unit("mean1_uniform")), r"^base.normalize=mean1_uniform must be none; use the normalize"),
        (lambda: Debiased("mean2"), r"^normalize=mean2 must be one of none, mean1_uniform"),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
