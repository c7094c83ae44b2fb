"""What noise an image is trained with: independent of it, paired with it, or of another kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from diffusion_lab.arguments import check_number

# shape -> standard normal numbers, other ones at each call of a step
StandardNormal = Callable[[tuple[int, ...]], Tensor]


class TrainingNoise:
    """The noise of a step, from independent noise: one for the target, and one at the network's input,

        x_t = alpha_t x0 + sigma_t input,     target of (x0, noise).

    Both are `eps` by default. Stateless, so a run resumes exactly. The rows are those of the whole global batch,
    equal on all processes, so that the number of processes and microbatches changes nothing.
    """

    uses_images = False  # whether `noise` is given the images of the global batch, which then is one microbatch

    def noise(self, x0: Tensor | None, eps: Tensor, normal: StandardNormal) -> Tensor:
        """(G,C,H,W) the noise of the target.

        Args:
            x0: (G,C,H,W) images of the global batch; None unless `uses_images`.
            eps: (G,C,H,W) independent noise.
            normal: further standard normal numbers.
        """
        return eps

    def input(self, eps: Tensor, normal: StandardNormal) -> Tensor:
        """(G,C,H,W) the noise at the input.

        Args:
            eps: (G,C,H,W) what `noise` returned.
            normal: further standard normal numbers.
        """
        return eps


class Coupling(TrainingNoise, ABC):
    """A permutation of the step's noise. Whatever the permutation, the batch has the same noise; only who has which row
    changes.

    With labels the noise of one class is no longer N(0, I), although that of all classes together is: a conditional
    model is then sampled from other noise than it was trained on.
    """

    uses_images = True

    def noise(self, x0: Tensor | None, eps: Tensor, normal: StandardNormal) -> Tensor:
        assert x0 is not None
        return eps[self.order(x0, eps).to(eps.device)]

    @abstractmethod
    def order(self, x0: Tensor, eps: Tensor) -> Tensor:
        """(G,) int64 on any device: image i gets the noise eps[order[i]].

        Args:
            x0: (G,C,H,W) images of the global batch.
            eps: (G,C,H,W) independent noise.
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


class Offset(TrainingNoise):
    """One more number for each channel of an image, in target and input:

        noise = eps + strength z,     z ~ N(0, I) of shape (C,1,1)

    The mean over H x W pixels of independent noise has the variance 1/(H W), so it hardly hides the mean brightness of
    an image, and a model learns to keep that of its noise (Guttenberg 2023, "Diffusion with Offset Noise", CrossLabs).
    Here the variance of a channel's mean is strength^2 + 1/(H W).

    Samples begin with independent noise all the same, as there: without a schedule whose last timestep is all noise,
    training and sampling differ the more for it.

    Use: for images whose mean brightness varies, when samples are all of middle brightness.

    Args:
        strength: >= 0; 0.1 in the source.

    Raises:
        ValueError: strength < 0.
    """

    def __init__(self, strength: float = 0.1) -> None:
        self.strength = check_number("strength", strength, "[)", 0, float("inf"), "use 0.1")

    def noise(self, x0: Tensor | None, eps: Tensor, normal: StandardNormal) -> Tensor:
        return eps + self.strength * normal((*eps.shape[:2], 1, 1))


class InputPerturbation(TrainingNoise):
    """More noise at the input than in the target (Ning et al. 2023, "Input Perturbation Reduces Exposure Bias in
    Diffusion Models", arXiv 2301.11706):

        x_t = alpha_t x0 + sigma_t (eps + strength z),     z ~ N(0, I),     target of (x0, eps)

    In sampling, x_t has the errors of the steps before it, which x_t in training has not; the perturbation stands for
    them. The target is still that of eps, so the network learns to take z away.

    Use: with few steps or long runs, when samples are worse than the loss lets expect.

    Args:
        strength: >= 0; 0.1 in the paper.

    Raises:
        ValueError: strength < 0.
    """

    def __init__(self, strength: float = 0.1) -> None:
        self.strength = check_number("strength", strength, "[)", 0, float("inf"), "use 0.1")

    def input(self, eps: Tensor, normal: StandardNormal) -> Tensor:
        return eps + self.strength * normal(tuple(eps.shape))


def assignment(cost: Tensor) -> Tensor:
    """(B,) int64 on the CPU: the permutation pi of least sum_i cost[i, pi(i)], exactly, in O(B^3) on the host.

    A step on 3 x 32 x 32 images takes 2 ms more for 128 images and 0.24 s more for 1024 with `MinibatchOT`, 6 ms and
    0.54 s with `Immiscible`, on one CPU thread. Each process solves the same assignment; what they exchange is the
    images, of which each gets all others'.
    """
    from scipy.optimize import linear_sum_assignment  # here, because it takes long to import

    return torch.from_numpy(linear_sum_assignment(cost.double().cpu().numpy())[1])
