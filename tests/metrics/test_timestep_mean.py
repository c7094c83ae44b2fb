"""Per-timestep sums."""

import numpy as np
import pytest
import torch

from diffusion_lab.metrics import TimestepMean


def test_totals_against_numpy():
    rng = np.random.RandomState(0)
    t, value = rng.randint(0, 9, 500), rng.normal(3, 2, 500).astype(np.float32)  # timestep 9 is never seen
    table = TimestepMean(10)
    for part in np.array_split(np.arange(500), 7):
        table.update(torch.tensor(t[part]), torch.tensor(value[part]))
    totals = table.totals()
    assert totals.count.tolist() == np.bincount(t, minlength=10).tolist()
    for i in range(9):
        seen = value[t == i].astype(np.float64)
        assert totals.mean()[i] == pytest.approx(seen.mean(), rel=1e-12)
        assert totals.variance()[i] == pytest.approx(seen.var(), rel=1e-9)
    assert torch.isnan(totals.mean()[9]) and torch.isnan(totals.variance()[9])


def test_batches_are_added_in_their_order_to_the_bit():
    torch.manual_seed(0)
    table, forwards, backwards = TimestepMean(7), *torch.zeros(2, 7, dtype=torch.float64)
    batches = [(torch.randint(0, 7, (5,)), torch.randn(5) * 10.0 ** (i % 9)) for i in range(100)]  # 3 times 32, and 4
    for t, value in batches:
        table.update(t, value)
        forwards.index_add_(0, t, value.double())
    for t, value in batches[::-1]:
        backwards.index_add_(0, t, value.double())
    assert torch.equal(table.totals().sum, forwards)
    assert not torch.equal(table.totals().sum, backwards)


def test_repeated_timesteps_in_one_batch_all_count():
    table = TimestepMean(4)
    table.update(torch.tensor([2, 2, 2]), torch.tensor([1.0, 2.0, 6.0]))
    assert table.totals().mean()[2] == 3 and table.totals().count.tolist() == [0, 0, 3, 0]


def test_float64_keeps_what_float32_loses():
    table = TimestepMean(1)
    value = torch.full((1000,), 0.1)
    for _ in range(200):
        table.update(torch.zeros(1000, dtype=torch.int64), value)
    assert table.totals().sum.item() == pytest.approx(200_000 * value[0].double().item(), rel=1e-12)


def test_state_is_saved_and_reset_forgets():
    table, copy = TimestepMean(3), TimestepMean(3)
    table.update(torch.tensor([0, 2]), torch.tensor([1.0, 5.0]))
    copy.load_state_dict(table.state_dict())
    assert torch.equal(copy.totals().square, table.totals().square)
    table.reset()
    assert table.totals().count.sum() == 0 and copy.totals().count.sum() == 2


def test_totals_are_a_copy():
    table = TimestepMean(3)
    before = table.totals()
    table.update(torch.tensor([0]), torch.tensor([1.0]))
    assert before.count.sum() == 0


def test_no_gradient_is_kept():
    table = TimestepMean(3)
    table.update(torch.tensor([1]), torch.tensor([1.0], requires_grad=True))
    assert not table.totals().sum.requires_grad


def test_bad_size_is_refused():
    with pytest.raises(ValueError, match="^num_timesteps=0 must be an integer >= 1"):
        TimestepMean(0)
