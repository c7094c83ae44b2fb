"""How often a sample has the class on which it was conditioned, according to the extractor."""

from __future__ import annotations

from torch import Tensor

from diffusion_lab.metrics.generated import Batch
from diffusion_lab.metrics.metric import SampleMetric


class Agreement(SampleMetric):
    """Share of the samples whose largest logit is that of the class on which they were conditioned, in [0, 1].

    For a conditional model on data with the extractor's classes.
    """

    name, better = "agreement", "higher"
    needs = frozenset({"classes"})

    def of(self, batch: Batch) -> Tensor | None:
        if batch.classes is None or batch.logits is None:
            return None
        return (batch.logits.argmax(1) == batch.classes.to(batch.logits.device)).double()
