"""The rows of an update, of all microbatches and processes."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.timesteps import StepRecord


@pytest.mark.parametrize("sizes", [(5,), (3, 3), (4, 2), (2, 1, 3)])
def test_the_rows_of_all_processes_are_gathered_in_the_order_of_the_global_batch(sizes, monkeypatch) -> None:
    """Also if the microbatches are of unequal size: the last batches of a loader of one's own."""
    rows = torch.arange(2 * sum(sizes))
    wanted = rows.split([2 * size for size in sizes])  # microbatch by microbatch, of each first process 0, then 1
    own = [torch.cat([part.chunk(2)[rank] for part in wanted]) for rank in range(2)]
    records = [StepRecord(part, {}, part, part, part) for part in own[1].split(sizes)]
    joined = StepRecord.join(records)
    assert torch.equal(joined.gather(joined.t), own[1])  # one process
    monkeypatch.setattr("diffusion_lab.timesteps.context.gather_rows", lambda local: torch.cat(own))
    assert torch.equal(joined.gather(joined.t), rows)


@pytest.mark.parametrize("name", ["errors", "weight", "index"])
def test_a_record_joins_others_that_lack_some_rows_or_have_notes_of_somebody_else(name: str) -> None:
    rows = torch.arange(2)
    with_rows, without = (StepRecord(rows, {}, rows, rows, rows, **more) for more in ({name: rows}, {}))
    with_rows.note = without.note = "of a user's own step"
    for records in ([with_rows, without], [without, with_rows]):
        assert torch.equal(getattr(StepRecord.join(records), name), rows)
    assert getattr(StepRecord.join([without, without]), name) is None
