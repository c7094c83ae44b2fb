"""Streams: pure functions of (seed, stream, position)."""

import pytest
import torch

from diffusion_lab.streams import Position, Streams


def test_numbers_do_not_depend_on_what_was_drawn_before():
    one, other = Streams(3), Streams(3)
    other.normal((100,), "noise", 0)
    torch.rand(7)
    assert torch.equal(one.normal((4,), "noise", 1), other.normal((4,), "noise", 1))


def test_seed_stream_and_position_each_change_the_numbers():
    base = Streams(0).uniform(8, "noise", 1)
    for changed in (
        Streams(1).uniform(8, "noise", 1),
        Streams(0).uniform(8, "timesteps", 1),
        Streams(0).uniform(8, "noise", 2),
        Streams(0).uniform(8, "noise", 1, 0),
    ):
        assert not torch.equal(base, changed)


def test_position_cannot_be_confused_with_another():
    """(1, 23) and (12, 3) are different places."""
    streams = Streams(0)
    assert streams.key("noise", 1, 23) != streams.key("noise", 12, 3)


def test_the_global_generator_is_left_alone():
    state = torch.random.get_rng_state()
    Streams(0).normal((10,), "noise", 0)
    assert torch.equal(state, torch.random.get_rng_state())


def test_consecutive_steps_are_uncorrelated():
    a = torch.stack([Streams(0).normal((256,), "noise", k) for k in range(200)])
    r = torch.corrcoef(a)[torch.triu_indices(200, 200, 1).unbind()]
    assert float(r.abs().max()) < 6 / 256**0.5 and abs(float(r.mean())) < 0.002


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_bad_seed(seed):
    with pytest.raises(ValueError, match="must be an integer >= 0"):
        Streams(seed)


@pytest.mark.parametrize("per_image", [1, 16, 0.5])
def test_a_cut_microbatch_has_the_rows_after_those_before_it(per_image: float) -> None:
    """Rows are images, patches of them, or parts of the batch."""
    whole, cut = (Position(0, rank, 2, 1, 2, first=8, here=here) for rank, here in ((1, 8), (1, 4)))
    full, fewer = round(8 * per_image), round(4 * per_image)
    assert whole.rows(full) == slice(3 * full, 4 * full) and whole.global_rows(full) == 4 * full
    assert cut.rows(fewer) == slice(3 * full, 3 * full + fewer) and cut.global_rows(fewer) == 4 * full
    assert Position(0, 1, 2, 1, 2).rows(5) == slice(15, 20)
