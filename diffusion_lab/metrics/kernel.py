"""The kernel distance of two feature sets, computed by torch-fidelity.

unbiased MMD^2 with the kernel (x.y/D + 1)^3, mean over random subsets          Binkowski et al. (2018)
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from diffusion_lab.metrics.feature_checks import checked, same_dim
from diffusion_lab.metrics.metric import Given, Metric

SUBSET_SIZE = 1000


class KernelDistance(Metric):
    """Between N samples and as many reference images, evenly spread over the split."""

    name, elsewhere, better = "kid", "kd", "lower"
    needs = frozenset({"features"})

    def __call__(self, given: Given) -> float:
        return given.once(kernel_distance)

    def settings(self, given: Given) -> dict[str, Any]:
        size = min(SUBSET_SIZE, given.num_samples, len(given.reference.features))
        return {"kernel": "(x.y/D+1)^3", "subset_size": size}


def kernel_distance(a: Tensor, b: Tensor, subset_size: int = SUBSET_SIZE, subsets: int = 100) -> float:
    """Kernel distance of features a (N,D) and b (M,D); about 0, also slightly negative, for equal distributions.

    Args:
        subset_size: rows per random subset, limited to min(N, M).
        subsets: number of random subsets.

    Differs from torch-fidelity's defaults: it raises with fewer rows than `subset_size`; here the subset becomes the
    smaller of the two sets. If a subset is all of both sets, it is computed only once. torch-fidelity computes in the
    features' float32, with a rounding error of 2e-7 of the distance; here float64 is used, as for the other metrics.
    """
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

    same_dim(a, b)
    a, b = checked("a", a), checked("b", b)
    size = min(subset_size, len(a), len(b))
    subsets = 1 if size == len(a) == len(b) else subsets
    result = kid_features_to_metric(a.double(), b.double(), kid_subset_size=size, kid_subsets=subsets, verbose=False)
    return result[KEY_METRIC_KID_MEAN]
