"""The agreement of a classifier with the class that was asked for, counted by hand."""

from __future__ import annotations

import pytest
import torch

from diffusion_lab.metrics import Agreement, Batch, Generated, Given


def given(classes: torch.Tensor | None) -> Given:
    """Five images in two batches; the sixth only fills up a share."""
    metric = Agreement()
    generated = Generated(5, metric.needs, {metric.name: metric.of})
    seen = torch.tensor([0, 1, 1, 2, 1, 2])
    logits = torch.nn.functional.one_hot(seen, 3).float() * 7 - 2
    samples = torch.zeros(6, 1, 2, 2, dtype=torch.uint8)
    for ids in (range(0, 2), range(2, 6)):
        rows = list(ids)
        asked = None if classes is None else classes[rows]
        generated.update(Batch(ids, samples[rows], logits=logits[rows], classes=asked))
    return Given(5, generated.across_ranks(), compare=lambda: pytest.fail("no reference is needed"))


def test_agreement_is_the_share_of_the_images_with_the_class_asked_for() -> None:
    asked = torch.tensor([0, 1, 2, 0, 1, 2])  # right: 0, 1, 4 and the sixth
    assert Agreement()(given(asked)) == pytest.approx(3 / 5)


def test_where_the_extractor_does_not_know_the_classes_there_is_none() -> None:
    assert Agreement()(given(None)) is None
