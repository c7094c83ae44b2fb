"""How the noise of a global batch is paired with its images."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Coupling(ABC):
    """A permutation of the step's noise; stateless, so a run resumes exactly.

    The rows are those of the whole global batch, equal on all processes, so that the number of processes changes
    nothing. Whatever the permutation, the batch has the same noise; only who has which row changes. Without a coupling
    images and noise are independent.

    With labels the noise of one class is no longer N(0, I), although that of all classes together is: a conditional
    model is then sampled from other noise than it was trained on.
    """

    @abstractmethod
    def order(self, x0: Tensor, eps: Tensor) -> Tensor:
        """(B,) int64 on any device: image i gets the noise eps[order[i]].

        Args:
            x0: (B,C,H,W) images of the global batch.
            eps: (B,C,H,W) independent noise.
        """


class MinibatchOT(Coupling):
    """The optimal transport of the batch to its noise at squared Euclidean cost:

        min over permutations pi of sum_i |x_i - eps_pi(i)|^2   =   max of sum_i <x_i, eps_pi(i)>,

    since the squares themselves do not depend on pi. For the same reason the scale of the noise at the path's end, or
    any alpha and sigma, changes nothing. The plan between two uniform sets of B points is a permutation (Pooladian et
    al. 2023, "Multisample Flow Matching", section 3; Tong et al. 2023, arXiv 2302.00482, section 4.1).

    Differs from Tong et al., who draw B pairs from the plan with replacement: each image has exactly one row of noise.
    """

    def order(self, x0: Tensor, eps: Tensor) -> Tensor:
        return assignment(-(x0.flatten(1).float() @ eps.flatten(1).float().T))


class Immiscible(Coupling):
    """The assignment of noise to images of least total distance, sum_i |x_i - eps_pi(i)| (Li et al. 2024, "Immiscible
    Diffusion", arXiv 2406.12303, algorithm 1).

    It is `MinibatchOT` with the distance in place of its square. In many dimensions all distances are nearly equal, and
    the square is nearly linear between them, so the two pair almost alike.

    Differs from Li et al.: the whole global batch is assigned, not each device's; the cost is float32, not float16.
    """

    def order(self, x0: Tensor, eps: Tensor) -> Tensor:
        return assignment(torch.cdist(x0.flatten(1).float(), eps.flatten(1).float()))


def assignment(cost: Tensor) -> Tensor:
    """(B,) int64 on the CPU: the permutation pi of least sum_i cost[i, pi(i)], exactly, in O(B^3) on the host.

    A step on 3 x 32 x 32 images takes 2 ms more for 128 images and 0.24 s more for 1024 with `MinibatchOT`, 6 ms and
    0.54 s with `Immiscible`, on one CPU thread. Each process solves the same assignment; what they exchange is the
    images, of which each gets all others'.
    """
    from scipy.optimize import linear_sum_assignment  # here, because it takes long to import

    return torch.from_numpy(linear_sum_assignment(cost.double().cpu().numpy())[1])
