"""The agreement of a classifier with the class that was asked for, counted by hand."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.metrics.measures import Summary


def test_agreement_is_the_share_of_the_images_with_the_class_asked_for() -> None:
    """Five images in two batches; the sixth only fills up a share."""
    summary = Summary((), 5, 2)
    assert summary.agreement is None
    asked = torch.tensor([0, 1, 2, 0, 1, 2])
    seen = torch.tensor([0, 1, 1, 2, 1, 2])  # right: 0, 1, 4 and the sixth
    logits = torch.nn.functional.one_hot(seen, 3).float() * 7 - 2
    for ids in (range(0, 2), range(2, 6)):
        summary.compare_classes(ids, logits[list(ids)], asked[list(ids)])
    assert summary.across_ranks().agreement == pytest.approx(3 / 5)
