"""Equal-loss slots against Xie & Agam's Table 1 and against counts."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from diffusion_lab.streams import Streams
from diffusion_lab.testing import check_marginal
from diffusion_lab.timesteps import (
    Context,
    EqualLossSlots,
    Position,
    SlotRestricted,
    StepRecord,
    Stratified,
    Uniform,
    equal_sum_slots,
    slots,
)
from diffusion_lab.timesteps.slots import fill

SIZES = [5, 8, 10, 14, 19, 26, 38, 57, 100, 723]
PAPER = torch.repeat_interleave(0.1 / torch.tensor(SIZES).double(), torch.tensor(SIZES))


def test_slots_of_the_papers_loss_curve():
    assert equal_sum_slots(PAPER, 10).diff().tolist() == SIZES


def test_equal_losses_give_equal_slots():
    assert equal_sum_slots(torch.ones(1000), 4).tolist() == [0, 250, 500, 750, 1000]


@pytest.mark.parametrize("where", [0, 17, 39])
def test_every_slot_keeps_one_timestep_when_one_holds_all_the_loss(where):
    loss = torch.zeros(40)
    loss[where] = 1.0
    edges = equal_sum_slots(loss, 10)
    assert edges[0] == 0 and edges[-1] == 40 and bool((edges.diff() >= 1).all())


def test_a_batch_has_the_same_number_of_rows_in_each_slot():
    sampler = EqualLossSlots(1000, loss_curve=PAPER.tolist(), update_every=0)
    t = sampler.draw(torch.zeros(60, 1, 2, 2), Context(Position(3), Streams(0))).t
    slot = torch.searchsorted(sampler.edges, t, right=True) - 1
    assert torch.bincount(slot, minlength=10).tolist() == [6] * 10


def rows_per_slot(sampler, edges, batches=400, rows=60):
    """(batches, K) rows of each batch in each slot."""
    draws = [sampler.draw(torch.zeros(rows, 1, 2, 2), Context(Position(step), Streams(0))).t for step in range(batches)]
    slot = torch.searchsorted(edges, torch.stack(draws), right=True) - 1
    return torch.stack([torch.bincount(row, minlength=len(edges) - 1) for row in slot]).double()


def test_without_mixing_the_rows_per_slot_are_multinomial_with_the_same_mean():
    """60 independent rows in ten slots: sum_k (n_k - 6)^2/6 of a batch has mean 9 and variance about 18."""
    mixed, alone = (EqualLossSlots(1000, 10, PAPER.tolist(), 0, stratify=stratify) for stratify in (True, False))
    assert torch.equal(mixed.probabilities(0), alone.probabilities(0))
    assert bool((rows_per_slot(mixed, mixed.edges) == 6).all())
    counts = rows_per_slot(alone, alone.edges)
    statistic = ((counts - 6).square() / 6).sum(1)
    assert float(statistic.mean()) == pytest.approx(9, abs=4 * (18 / 400) ** 0.5)
    assert float(statistic.var()) == pytest.approx(18, rel=0.4)
    check_marginal(alone, 0, (1, 2, 2), 60, 60_000)
    assert float(alone.draw(torch.zeros(60, 1, 2, 2), Context(Position(0), Streams(0))).weight.sum()) == 60


def test_without_mixing_the_edges_follow_the_losses_all_the_same():
    samplers = [EqualLossSlots(100, num_slots=4, update_every=1, stratify=stratify) for stratify in (True, False)]
    t, loss = torch.arange(100), torch.rand(100, generator=torch.Generator().manual_seed(0)).double()
    for sampler in samplers:
        sampler.observe(StepRecord(torch.zeros(100, 1, 1, 1), {}, t, loss, loss), Context(Position(0), Streams(0)))
    assert torch.equal(samplers[0].edges, samplers[1].edges) and samplers[0].edges[1] != 25


@pytest.mark.parametrize("num_slots", [4, 5, 10, 20])
def test_the_uniform_distribution_stratified_mixes_every_batch_over_slots_of_equal_width(num_slots):
    """It is what ten slots of a constant loss draw, at every number of slots that divides the batch."""
    uniform = Stratified(Uniform(1000))
    assert torch.equal(uniform.probabilities(0), torch.full((1000,), 0.001, dtype=torch.float64))
    slots = EqualLossSlots(1000, num_slots, loss_curve=[1.0], update_every=0)
    assert bool((rows_per_slot(uniform, slots.edges, batches=50) == 60 / num_slots).all())
    for step in range(50):
        x0, context = torch.zeros(60, 1, 2, 2), [Context(Position(step), Streams(0)) for _ in range(2)]
        assert torch.equal(uniform.draw(x0, context[0]).t, slots.draw(x0, context[1]).t)
    independent = rows_per_slot(Uniform(1000), slots.edges, batches=50)
    assert not bool((independent == 60 / num_slots).all(1).any())


def test_the_marginal_is_flat_inside_a_slot():
    p = EqualLossSlots(1000, loss_curve=PAPER.tolist(), update_every=0).probabilities(0) * 1000
    assert p[0].item() == pytest.approx(20.0) and p[999].item() == pytest.approx(100 / 723)


def test_edges_follow_the_observed_losses():
    sampler = EqualLossSlots(100, num_slots=4, update_every=3)
    t = torch.arange(100)
    loss = torch.where(t < 10, 9.0, 1.0).double()  # the first ten have half of the loss
    for step in range(3):
        assert sampler.edges.tolist() == [0, 25, 50, 75, 100]
        record = StepRecord(torch.zeros(100, 1, 1, 1), {}, t, loss, loss)
        sampler.observe(record, Context(Position(step), Streams(0)))
    assert sampler.edges.tolist() == [0, 5, 10, 55, 100]


def test_all_processes_take_the_edges_of_rank_0_once_per_move(monkeypatch):
    sent = []

    def edges_of_rank_0(edges):
        sent.append(edges.tolist())
        return edges.copy_(torch.tensor([0, 6, 11, 56, 100]))

    monkeypatch.setattr(slots, "broadcast_", edges_of_rank_0)
    sampler = EqualLossSlots(100, num_slots=4, update_every=3)
    t, loss = torch.arange(100), torch.ones(100).double()
    for step in range(7):
        record = StepRecord(torch.zeros(100, 1, 1, 1), {}, t, loss, loss)
        sampler.observe(record, Context(Position(step), Streams(0)))
    assert sent == [[0, 25, 50, 75, 100]] * 2  # after steps 2 and 5
    assert sampler.edges.tolist() == [0, 6, 11, 56, 100]


def test_the_curve_of_a_run_and_of_a_list_give_the_same_edges(tmp_path):
    curve = [8.0, 4.0, 2.0, 1.0]
    (tmp_path / "curve.json").write_text(json.dumps(curve))
    rows = [{"step": 1, "val/loss_t": [1, 1, 1, 1]}, {"step": 2, "train/loss": 1}, {"step": 3, "val/loss_t": curve}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    edges = [
        EqualLossSlots(100, 5, given, update_every=0).edges.tolist()
        for given in (curve, str(tmp_path / "curve.json"), str(tmp_path / "metrics.jsonl"))
    ]
    assert edges[0] == edges[1] == edges[2] and edges[0] != [0, 20, 40, 60, 80, 100]


def written(path, timesteps, mean):
    np.savez(path, timesteps=np.asarray(timesteps), mean=np.asarray(mean))
    return str(path)


def test_the_curve_of_an_analysis_keeps_its_single_timesteps(tmp_path):
    """The paper's first slot is [0, 4]; twenty ranges of fifty timesteps cannot have an edge there."""
    path = written(tmp_path / "data.npz", range(1000), PAPER[None, :, None])
    sampler = EqualLossSlots(1000, loss_curve=path, update_every=0)
    assert sampler.edges.diff().tolist() == SIZES
    ranges = EqualLossSlots(1000, loss_curve=PAPER.view(20, 50).mean(1).tolist(), update_every=0)
    assert ranges.edges[1] > 10
    restricted = SlotRestricted(1000, slots=[1, 3], loss_curve=path)
    by_edges = SlotRestricted(1000, edges=[0, *torch.tensor(SIZES).cumsum(0).tolist()], slots=[1, 3])
    assert torch.equal(restricted.probabilities(0), by_edges.probabilities(0))


def test_a_run_keeps_the_curve_that_it_began_with(tmp_path):
    """The checkpoint has it, so that a file that changes in between changes nothing; without a curve it has nothing."""
    path = written(tmp_path / "data.npz", range(1000), PAPER[None, :, None])
    makers = (
        lambda: EqualLossSlots(1000, loss_curve=path, update_every=0),
        lambda: SlotRestricted(1000, loss_curve=path),
    )
    begun = [make() for make in makers]
    written(tmp_path / "data.npz", range(1000), PAPER.flip(0)[None, :, None])
    u = torch.linspace(0, 0.999, 50).double()
    for before, make in zip(begun, makers, strict=True):
        after = make()
        assert not torch.equal(after.quantile(u, 0), before.quantile(u, 0))
        after.load_state_dict(before.state_dict())
        assert torch.equal(after.quantile(u, 0), before.quantile(u, 0))
        assert torch.equal(after.probabilities(0), before.probabilities(0))
    assert not SlotRestricted(1000).state_dict()


@pytest.mark.parametrize(
    ("timesteps", "mean", "words"),
    [
        (range(4), np.ones((1, 4, 1)), "must hold the loss at each of the 5 timesteps, and has 4"),
        (range(6), np.ones((1, 6, 1)), "must hold the loss at each of the 5 timesteps, and has 6"),
        (range(0, 10, 2), np.ones((1, 5, 1)), "must hold the loss at each of the 5 timesteps"),
        (range(5), np.ones((2, 5, 1)), "must hold one curve"),
        (range(5), np.ones((1, 5, 3)), "must hold one curve"),
        (range(5), np.ones(5), "must hold one curve"),
        (range(5), np.full((1, 5, 1), np.nan), r"\[0\]=nan must"),
        (range(5), np.full((1, 5, 1), print, dtype=object), "must be the data.npz of .* it is not"),
        (range(5), np.full((1, 5, 1), "a"), "must be the data.npz of .* it is not"),
    ],
)
@pytest.mark.parametrize("sampler", [EqualLossSlots, SlotRestricted])
def test_a_file_of_other_timesteps_or_of_anything_else(sampler, timesteps, mean, words, tmp_path):
    path = written(tmp_path / "data.npz", timesteps, mean)
    with pytest.raises(ValueError, match=f"^loss_curve.*{words}"):
        sampler(5, num_slots=2, loss_curve=path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"\x80\x04N."])
def test_a_damaged_file(content, tmp_path):
    (tmp_path / "data.npz").write_bytes(content)
    for name in ("data.npz", "missing.npz"):
        with pytest.raises(ValueError, match="^loss_curve=.* must be the data.npz of analysis=per_timestep"):
            EqualLossSlots(5, num_slots=2, loss_curve=str(tmp_path / name))


def test_gaps_take_the_nearest_number():
    nan = float("nan")
    assert fill(torch.tensor([nan, 1.0, nan, nan, 4.0, nan])).tolist() == [1, 1, 1, 4, 4, 4]


def test_restricted_slots_are_uniform_inside_and_zero_outside():
    p = SlotRestricted(1000, edges=[0, 5, 13, 23, 37, 56, 82, 120, 177, 277, 1000], slots=[3]).probabilities(0)
    assert p[13:23].tolist() == pytest.approx([0.1] * 10) and float(p.sum()) == pytest.approx(1)
    assert not p[:13].any() and not p[23:].any()


@pytest.mark.parametrize(
    ("make", "start"),
    [
        (lambda: EqualLossSlots(5, num_slots=6), "num_slots=6 must be an integer in"),
        (lambda: EqualLossSlots(5, num_slots=2, loss_curve=[1.0, float("nan")]), r"loss_curve\[1\]=nan must"),
        (lambda: EqualLossSlots(5, num_slots=2, loss_curve=[0.0]), "loss_curve=all zero must"),
        (lambda: EqualLossSlots(5, num_slots=2, loss_curve=[1.0] * 6), "loss_curve of 6 numbers must"),
        (lambda: EqualLossSlots(5, num_slots=2, loss_curve="nowhere.json"), "loss_curve=nowhere.json must"),
        (lambda: EqualLossSlots(5, num_slots=2, update_every=-1), "update_every=-1 must"),
        (lambda: EqualLossSlots(5, num_slots=2, stratify=1), "stratify=1 must be true or false"),
        (lambda: EqualLossSlots(5, num_slots=2, update_every=0), "loss_curve=null must"),
        (lambda: SlotRestricted(10, edges=[0, 5, 11]), r"edges=\[0, 5, 11\] must increase"),
        (
            lambda: SlotRestricted(2, edges=[0, 1, 2], loss_curve=[1.0]),
            r"edges=\[0, 1, 2\] must be null beside loss_curve",
        ),
        (lambda: SlotRestricted(10, slots=[11]), "slots=11 must be numbers in"),
        (lambda: SlotRestricted(10, slots=[]), r"slots=\[\] must be numbers in"),
    ],
)
def test_bad_values_are_named(make, start):
    with pytest.raises(ValueError, match=f"^{start}"):
        make()
