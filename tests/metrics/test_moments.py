"""Sums over batches against NumPy and torch-fidelity on all rows at once."""

import numpy as np
import pytest
import torch
from torch_fidelity.metric_isc import isc_features_to_metric

from diffusion_lab.metrics import Batch, Features, Generated, Moments, ScoreSums


def filled(x, sizes):
    moments = Moments(x.shape[1])
    for part in x.split(sizes):
        moments.update(part)
    return moments


@pytest.mark.parametrize("sizes", [[200], [1, 60, 139], [50, 50, 50, 50]])
def test_mean_and_covariance_of_batches_are_those_of_all_rows(rows, sizes):
    """Means of up to 100 with a spread of 1, far from zero: float32 sums would be wrong in the third digit."""
    x = rows(200, 12) + torch.linspace(-100, 100, 12)
    found = filled(x, sizes).statistics()
    wanted = x.double().numpy()
    assert np.allclose(found.mu, wanted.mean(0), rtol=1e-13)
    assert np.allclose(found.sigma, np.cov(wanted, rowvar=False), rtol=1e-9, atol=1e-11)
    float32 = x.numpy()
    product = (float32.T @ float32 - len(x) * np.outer(float32.mean(0), float32.mean(0))) / (len(x) - 1)
    assert not np.allclose(product, np.cov(wanted, rowvar=False), rtol=1e-3)


def test_two_halves_add_up_to_the_whole(rows):
    """As the sum over two ranks does."""
    x = rows(100, 6)
    whole, first, second = filled(x, [100]), filled(x[:40], [40]), filled(x[40:], [60])
    first.sums += second.sums
    for a, b in zip(first.statistics(), whole.statistics(), strict=True):
        assert np.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_too_few_rows_and_numbers_that_are_not_finite_are_refused(rows):
    with pytest.raises(ValueError, match="^features=11 images must be at least 12, twice their 6 dimensions"):
        filled(rows(11, 6), [11]).statistics()
    bad = rows(20, 6)
    bad[3, 2] = float("inf")
    with pytest.raises(ValueError, match="^features must be finite"):
        filled(bad, [20]).statistics()


@pytest.mark.parametrize(("total", "splits", "size"), [(120, 10, 37), (103, 7, 103), (10, 10, 1)])
def test_inception_score_of_batches_is_torch_fidelitys(rows, total, splits, size):
    """Splits of unequal sizes too, and each image in the split that torch-fidelity's shuffle deals it to."""
    logits = 3 * rows(total, 5)
    sums = ScoreSums(total, splits)
    for ids in torch.arange(total).split(size):
        sums.update(ids, logits[ids])
    wanted = isc_features_to_metric(logits, splits=splits)["inception_score_mean"]
    assert sums.score() == pytest.approx(wanted, rel=1e-12)
    if total > splits:
        unshuffled = isc_features_to_metric(logits, splits=splits, shuffle=False)["inception_score_mean"]
        assert sums.score() != pytest.approx(unshuffled, rel=1e-6)


ALL = {"moments", "scores", "features"}


def kept(needs, total, rows):
    generated = Generated(total, needs, feature_dim=16)
    for ids in torch.arange(total).split(100):
        found = Features(rows(len(ids), 16, int(ids[0])), rows(len(ids), 5, 1))
        generated.update(Batch(ids.tolist(), torch.zeros(len(ids), 1, 2, 2, dtype=torch.uint8), *found))
    return generated


def size(generated):
    """Bytes of all tensors in it."""
    kept = [tensor for parts in generated._rows.values() for tensor in parts]
    kept += [generated.moments.sums] if generated.moments else []
    kept += [generated.scores.sums, generated.scores.split] if generated.scores else []
    return sum(tensor.nbytes for tensor in kept)


def test_what_is_kept_does_not_grow_with_the_images_unless_points_are_compared(rows):
    small, large = (size(kept({"moments"}, n, rows)) for n in (200, 2000))
    assert small == large == 8 * 17**2
    small, large = (size(kept({"moments", "scores"}, n, rows)) for n in (200, 2000))
    assert large - small == 1800  # a byte per image
    small, large = (size(kept(ALL, n, rows)) for n in (200, 2000))
    assert large - small == 1800 * (4 * 16 + 1)
    small, large = (size(kept({"samples", "logits"}, n, rows)) for n in (200, 2000))
    assert large - small == 1800 * (4 + 4 * 5)


def test_images_beyond_the_last_enter_no_sum(rows):
    """They fill up the last rank's share."""
    features, logits, bytes_ = rows(50, 4), rows(50, 5, 1), torch.zeros(50, 1, 2, 2, dtype=torch.uint8)
    each = {"largest": lambda batch: batch.logits.amax(1)}
    exact, filled_up = (Generated(46, ALL, each, feature_dim=4) for _ in range(2))
    for generated, last in ((exact, 46), (filled_up, 50)):
        for part in (range(40), range(40, last)):
            generated.update(Batch(part, bytes_[list(part)], features[list(part)], logits[list(part)]))
        generated.across_ranks()
    assert torch.equal(exact.moments.sums, filled_up.moments.sums)
    assert torch.equal(exact.scores.sums, filled_up.scores.sums)
    for name in ("features", "largest"):
        assert torch.equal(exact.rows(name), filled_up.rows(name)) and len(exact.rows(name)) == 46
    assert exact.rows("samples") is None
