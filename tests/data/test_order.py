from __future__ import annotations

import pickle
from collections import Counter
from itertools import islice

import pytest
import torch

from diffusion_lab.data import Rows, StepOrder
from diffusion_lab.data.image_order import Permutations
from diffusion_lab.streams import Streams


def order(num_images: int, batch_size: int, seed: int = 0, **kwargs) -> StepOrder:
    return StepOrder(num_images, batch_size, Streams(seed), **kwargs)


@pytest.mark.parametrize(("num_images", "batch_size"), [(10, 4), (12, 4), (7, 7), (5, 12), (3, 16), (1, 2)])
def test_every_epoch_shows_every_image_exactly_once(num_images, batch_size):
    one = order(num_images, batch_size)
    steps = 3 * num_images  # a whole number of epochs
    sequence = torch.cat([one.indices(k) for k in range(steps)]).view(-1, num_images)
    assert len(sequence) == 3 * batch_size
    assert torch.equal(sequence.sort(1).values, torch.arange(num_images).expand_as(sequence))


def test_epochs_differ_and_seeds_differ():
    one = order(50, 50)
    assert not torch.equal(one.indices(0), one.indices(1))
    assert not torch.equal(one.indices(0), order(50, 50, seed=1).indices(0))


def test_a_step_is_a_pure_function_of_seed_and_step():
    forwards, backwards = order(23, 8), order(23, 8)
    want = {k: forwards.indices(k) for k in range(20)}
    for k in reversed(range(20)):
        assert torch.equal(backwards.indices(k), want[k])


@pytest.mark.parametrize(("world_size", "accumulate"), [(1, 1), (2, 1), (1, 3), (2, 3), (4, 2)])
def test_ranks_and_microbatches_divide_the_same_global_batch(world_size, accumulate):
    whole = order(30, 24)
    parts = [order(30, 24, rank=r, world_size=world_size, accumulate=accumulate) for r in range(world_size)]
    streams = [iter(part) for part in parts]
    for step in range(4):
        seen = torch.full((24,), -1)
        local: list[list[int]] = [[] for _ in parts]
        for _ in range(accumulate):
            for rank, stream in enumerate(streams):
                rows = next(stream)
                assert rows.step == step and len(rows) == 24 // (world_size * accumulate)
                seen[rows.row : rows.row + len(rows)] = torch.tensor(rows)
                local[rank] += rows
        assert torch.equal(seen, whole.indices(step))
        assert all(part.local_indices(step).tolist() == ids for part, ids in zip(parts, local, strict=True))


def test_iteration_starts_at_the_step_that_start_gives_when_it_begins():
    now = [5]
    one = order(11, 4, start=lambda: now[0])
    now[0] = 7
    assert [next(iter(one)), *islice(one, 2)] == [
        one.indices(7).tolist(),
        one.indices(7).tolist(),
        one.indices(8).tolist(),
    ]


def test_it_has_no_length():
    with pytest.raises(TypeError):
        len(order(10, 2))


def test_only_one_permutation_is_kept_and_drawn_once_an_epoch():
    drawn: Counter[int] = Counter()

    class Counting(Streams):
        def generator(self, device, stream, *position):
            drawn[position[0]] += 1
            return super().generator(device, stream, *position)

    one = Permutations(100, 10, Counting(0))
    for k in range(30):
        one(k)
    assert drawn == {0: 1, 1: 1, 2: 1}
    assert one._permutation.shape == (100,)


def test_rows_keep_their_place_on_the_way_to_a_worker():
    rows = pickle.loads(pickle.dumps(Rows([3, 1], step=4, row=8)))
    assert (rows, rows.step, rows.row) == ([3, 1], 4, 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(num_images=0, batch_size=2), "num_images=0 must be an integer >= 1"),
        (dict(num_images=9, batch_size=0), "batch_size=0 must be an integer >= 1"),
        (dict(num_images=9, batch_size=4, accumulate=0), "accumulate=0 must be an integer >= 1"),
        (dict(num_images=9, batch_size=2.5), "batch_size=2.5 must be an integer"),
        (dict(num_images=9, batch_size=8, rank=2, world_size=2), "rank=2 must lie in 0..1"),
        (dict(num_images=9, batch_size=15, world_size=2, accumulate=2), "use 12 or 16"),
        (dict(num_images=9, batch_size=3, world_size=4), "use 4$"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        order(**arguments)
