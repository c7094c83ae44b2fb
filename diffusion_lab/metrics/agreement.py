"""How often a sample is of the class that it was asked for, by the extractor's own classes."""

from __future__ import annotations

from torch import Tensor

from diffusion_lab.metrics.generated import Batch
from diffusion_lab.metrics.metric import SampleMetric


class Agreement(SampleMetric):
    """Share of the samples whose largest logit is that of the class that was asked for, in [0, 1].

    Of a conditional model whose data's classes the extractor knows.
    """

    name, better = "agreement", "higher"
    needs = frozenset({"classes"})

    def of(self, batch: Batch) -> Tensor | None:
        if batch.classes is None or batch.logits is None:
            return None
        return (batch.logits.argmax(1) == batch.classes.to(batch.logits.device)).double()
