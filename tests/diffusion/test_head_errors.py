"""The tracker of the heads' errors against a recursion by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from diffusion_lab.diffusion import HeadErrors, cosine, linear
from diffusion_lab.diffusion.head_errors import angle, angle_of_log_snr, noise_bin


def log_snr_of(phi: list[float]) -> torch.Tensor:
    return torch.tensor([-2 * math.log(math.tan(p)) for p in phi], dtype=torch.float64)


def rows(n: np.ndarray, gate: np.ndarray) -> torch.Tensor:
    """Errors as `observe` takes them, of native errors n (G,3,D)."""
    return HeadErrors.row(torch.from_numpy(n), torch.from_numpy(gate))


def test_tables_follow_their_recursion():
    rng, bins, decay = np.random.default_rng(0), 6, 0.8
    tracker = HeadErrors(bins, decay)
    expected = [(np.zeros((3, 3)), 0.0, np.zeros(3)) for _ in range(bins)]
    for update in range(12):
        phi = rng.uniform(0.01, 1.2 if update < 11 else 0.2, 7)  # the last bins stay empty
        n = rng.normal(size=(7, 3, 5))
        gate = np.eye(3)[rng.integers(0, 3, 7)]
        tracker.observe(log_snr_of(phi.tolist()), rows(n, gate))
        for b in range(bins):
            mine = [i for i in range(7) if int(phi[i] // (math.pi / 2 / bins)) == b]
            if mine:
                m, w, g = expected[b]
                m = decay * m + sum(n[i] @ n[i].T / 5 for i in mine)
                expected[b] = m, decay * w + len(mine), decay * g + gate[mine].sum(0)
    centres = tracker.centres()
    for b in range(bins - 1):
        m, w, g = expected[b]
        np.testing.assert_allclose(tracker.matrix(centres[b : b + 1])[0].numpy(), m / w, rtol=1e-12)
        np.testing.assert_allclose(tracker.shares()[b].numpy(), g / w, rtol=1e-12)
    assert expected[-1][1] == 0 and tracker.shares()[-1].isnan().all()
    torch.testing.assert_close(tracker.matrix(centres[-1:]), tracker.matrix(centres[-2:-1]))  # the nearest filled one
    assert tracker.updates == 12 and tracker.selected.sum() == 12 * 7


def test_of_two_nearest_bins_the_one_with_less_noise():
    tracker, step = HeadErrors(5), math.pi / 10
    for b, size in ((1, 1.0), (3, 2.0)):
        tracker.observe(log_snr_of([(b + 0.5) * step]), rows(np.full((1, 3, 4), size), np.ones((1, 3)) / 3))
    squares = tracker.mean_squares(tracker.centres())[:, 0]
    assert squares.tolist() == [1.0, 1.0, 1.0, 4.0, 4.0]


def test_identity_before_the_first_update():
    tracker = HeadErrors()
    assert torch.equal(tracker.matrix(tracker.centres()), torch.eye(3, dtype=torch.float64).expand(20, 3, 3))
    assert not tracker.seen


def test_x0_space_moments_are_the_native_ones_between_two_diagonals():
    """C_hk = sigma^2 N_hk / (q_h q_k) against errors that were converted head by head."""
    generator = torch.Generator().manual_seed(0)
    n = torch.randn(1, 3, 4000, generator=generator, dtype=torch.float64)
    alpha, sigma = math.cos(1.3), math.sin(1.3)
    e = torch.stack([n[:, 0], -sigma * n[:, 1], -sigma / alpha * n[:, 2]], 1)[0]  # x0 = alpha x - sigma v etc.
    tracker = HeadErrors()
    tracker.observe(log_snr_of([1.3]), HeadErrors.row(n, torch.ones(1, 3) / 3))
    q = torch.tensor([-sigma, 1.0, alpha], dtype=torch.float64)
    matrix = tracker.matrix(torch.tensor([1.3], dtype=torch.float64))[0]
    torch.testing.assert_close(sigma**2 * matrix / q[:, None] / q, e @ e.T / 4000)


def test_rows_that_are_not_finite_are_left_out():
    clean, dirty = HeadErrors(4), HeadErrors(4)
    n = np.random.default_rng(1).normal(size=(6, 3, 5))
    gate, log_snr = np.ones((6, 3)) / 3, log_snr_of([0.2, 0.4, 0.6, 0.8, 1.0, 1.2])
    clean.observe(log_snr[:4], rows(n[:4], gate[:4]))
    n[4, 0, 0], n[5, 2, 1] = np.inf, np.nan
    dirty.observe(log_snr, rows(n, gate))
    for name, table in clean.state_dict().items():
        torch.testing.assert_close(dirty.state_dict()[name], table, msg=name)


def test_bins_depend_on_the_noise_and_not_on_T():
    """Two schedules, and one respaced, put equal noise into one bin."""
    for schedule in (linear(1000), cosine(4000), cosine(4000).respace(torch.arange(0, 4000, 37))):
        t = torch.arange(schedule.num_timesteps)
        phi = angle_of_log_snr(schedule.log_snr)
        assert (phi.diff() > 0).all() and 0 < phi[0] and phi[-1] < math.pi / 2
        torch.testing.assert_close(phi.cos().square(), schedule.alphas_cumprod, rtol=1e-7, atol=1e-14)
        torch.testing.assert_close(angle(schedule.alpha(t, 4), schedule.sigma(t, 4)), phi, rtol=0, atol=1e-6)
    some = cosine(4000).respace(torch.arange(0, 4000, 37))
    whole = noise_bin(angle_of_log_snr(cosine(4000).log_snr), 20)[::37]
    assert torch.equal(noise_bin(angle_of_log_snr(some.log_snr), 20), whole)


def test_tables_keep_their_type_when_the_model_is_cast():
    tracker = HeadErrors().to(torch.bfloat16).half()
    assert tracker.moments.dtype == torch.float64 and tracker.updates.dtype == torch.int64


@pytest.mark.parametrize(
    ("arguments", "words"), [({"bins": 0}, "^bins=0 must"), ({"decay": 1.0}, r"^decay=1.0 must lie in \[0, 1\)")]
)
def test_arguments_out_of_range(arguments, words):
    with pytest.raises(ValueError, match=words):
        HeadErrors(**arguments)
