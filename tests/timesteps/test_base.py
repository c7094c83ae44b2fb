"""Positions, records and random numbers of a sampler's context."""

import torch

from diffusion_lab.streams import Streams
from diffusion_lab.timesteps import Context, Position, StepRecord


def test_rows_tile_the_global_batch():
    rows = []
    for micro in range(3):
        for rank in range(2):
            position = Position(7, rank, 2, micro, 3)
            rows += list(range(24))[position.rows(4)]
            assert position.global_rows(4) == 24
    assert rows == list(range(24))


def test_uniform_numbers_are_rows_of_the_global_ones():
    whole = Context(Position(3), Streams(5)).uniform(12)
    parts = [Context(Position(3, rank, 3, micro, 2), Streams(5)).uniform(2) for micro in range(2) for rank in range(3)]
    assert torch.equal(whole, torch.cat(parts))


def test_each_call_and_each_step_gives_new_numbers():
    context = Context(Position(3), Streams(5))
    a, b = context.uniform(4), context.uniform(4)
    c = Context(Position(4), Streams(5)).uniform(4)
    assert not torch.equal(a, b) and not torch.equal(a, c)
    assert torch.equal(a, Context(Position(3), Streams(5)).uniform(4))


def test_join_keeps_the_order_of_the_microbatches():
    def part(start):
        t = torch.arange(start, start + 2)
        return StepRecord(t.view(2, 1, 1, 1).float(), {"label": t}, t, t.float(), 2 * t.float())

    joined = StepRecord.join([part(0), part(2), part(4)])
    assert len(joined.microbatches) == 3
    t, loss = joined.gathered()
    assert t.tolist() == [0, 1, 2, 3, 4, 5] and loss.tolist() == t.tolist()
    assert joined.gathered(objective=True)[1].tolist() == [0, 2, 4, 6, 8, 10]
    assert joined.cond["label"].tolist() == t.tolist()
