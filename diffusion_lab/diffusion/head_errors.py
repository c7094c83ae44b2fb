"""Second moments of the errors of a prediction's three heads, by noise level.

The heads are ordered x0, v, eps. With alpha = cos phi, sigma = sin phi and x = alpha x0 + sigma eps, the output of each
head is an observation of v:

    y = (x0_hat - alpha x,  v_hat,  eps_hat - sigma x) = q v + n,      q = (-sigma, 1, alpha)

n is the head's error in its native space. Its error in x0-space is e_h = -sigma n_h / q_h, so that the second moments
of the x0-space errors, C = E[e e^T] with e (3,), are those of the native errors, N = E[n n^T], between two diagonals:

    C_hk(phi) = sigma^2 N_hk / (q_h q_k)

N is tracked instead of C: it is of order 1 at every noise level, whereas C_eps,eps = (sigma/alpha)^2 N_eps,eps reaches
1e10 at the end of a cosine schedule and would dominate the average of its bin. The diagonals are applied at the exact
noise level, so a bin averages only slowly varying values.

Bins are equal parts of phi in (0, pi/2). Unlike t, phi is independent of T, of the schedule and of respacing; unlike
log SNR, it is bounded; and the heads' targets change into each other at a uniform rate in phi (v = dx/dphi).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from diffusion_lab.arguments import check_integer, check_number
from diffusion_lab.diffusion.schedule import Tables

HEADS = ("x0", "v", "eps")
PRODUCTS = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # entries of a symmetric 3x3 matrix, the diagonal first


def angle(alpha: Tensor, sigma: Tensor) -> Tensor:
    """phi = atan2(sigma, alpha) of each row: (B,1,...,1) -> (B,) float64."""
    return torch.atan2(sigma.double(), alpha.double()).flatten()


def angle_of_log_snr(log_snr: Tensor) -> Tensor:
    """phi = atan(SNR^-1/2): any shape -> the same, float64."""
    return torch.atan(torch.exp(-0.5 * log_snr.double()))


def noise_bin(phi: Tensor, bins: int) -> Tensor:
    """floor(bins phi / (pi/2)): (B,) -> (B,) int64."""
    return (phi * (2 / math.pi * bins)).long().clamp_(0, bins - 1)


def sum_by_bin(index: Tensor, rows: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Finite rows in each bin, and their sums: (G,), (G,E) -> (bins,), (bins,E) float64.

    A product with a 0-1 matrix, because `index_add_` adds in no fixed order on a GPU: processes would drift apart.
    """
    rows = rows.double()
    finite = rows.isfinite().all(1)
    member = (index == torch.arange(bins, device=index.device)[:, None]) & finite
    return member.double().sum(1), member.double() @ torch.where(finite[:, None], rows, 0.0)


class HeadErrors(Tables):
    """Running second moments N of the heads' errors by bin of noise, and how often each head was selected.

    After an update with n_b > 0 finite rows in bin b, and never otherwise,

        M_b <- decay M_b + sum_i n_i n_i^T,   W_b <- decay W_b + n_b,   N_b = M_b / W_b

    which needs no correction for the start. A bin that nothing has reached takes the nearest one that something has,
    and N is the identity before the first update. `observe` alone changes anything; equal rows on all processes keep
    their tables equal.

    Args:
        bins: number of equal ranges of the noise's angle phi = atan(sigma/alpha), >= 1.
        decay: factor on the running sums at each update that reaches the bin, in [0, 1); 0.99 forgets after some 100.
    """

    moments: Tensor
    picked: Tensor
    weight: Tensor
    selected: Tensor
    updates: Tensor

    def __init__(self, bins: int = 20, decay: float = 0.99) -> None:
        super().__init__()
        self.bins = check_integer("bins", bins, 1, "use 20")
        self.decay = check_number("decay", decay, "[)", 0, 1, "use 0.99")
        for name, shape in (("moments", (bins, 3, 3)), ("picked", (bins, 3)), ("weight", (bins,))):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("selected", torch.zeros(bins, 3, dtype=torch.float64))  # rows since the start
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    @staticmethod
    def row(residuals: Tensor, gates: Tensor) -> Tensor:
        """What `observe` takes of each row: native errors (B,3,D) and selection (B,3) -> (B,E), E = 9."""
        # Six products in place of one matrix product, which autocast would compute in bfloat16.
        products = [(residuals[:, i] * residuals[:, j]).mean(1) for i, j in PRODUCTS]
        return torch.cat([torch.stack(products, 1), gates.to(residuals.dtype)], 1)

    @torch.no_grad()
    def observe(self, log_snr: Tensor, errors: Tensor) -> None:
        """The rows of one update: (G,), (G,E). Rows that are not finite are left out."""
        count, sums = sum_by_bin(noise_bin(angle_of_log_snr(log_snr), self.bins), errors, self.bins)
        kept = torch.where(count > 0, torch.full_like(count, self.decay), 1.0)  # float64, unlike of two numbers
        for column, (i, j) in enumerate(PRODUCTS):
            self.moments[:, i, j] = kept * self.moments[:, i, j] + sums[:, column]
            self.moments[:, j, i] = self.moments[:, i, j]
        gates = sums[:, len(PRODUCTS) :]
        self.picked.copy_(kept[:, None] * self.picked + gates)
        self.weight.copy_(kept * self.weight + count)
        self.selected += gates
        self.updates += 1

    def matrix(self, phi: Tensor) -> Tensor:
        """N at each noise: (B,) -> (B,3,3) float64."""
        mean = self.moments / self.weight.clamp(min=1e-300)[:, None, None]
        identity = torch.eye(3, dtype=mean.dtype, device=mean.device)
        return torch.where(self.seen, mean[self._nearest()], identity)[noise_bin(phi, self.bins)]

    def mean_squares(self, phi: Tensor) -> Tensor:
        """Mean square error of each head in its native space: (B,) -> (B,3) float64."""
        return self.matrix(phi).diagonal(dim1=1, dim2=2)

    @property
    def seen(self) -> Tensor:
        """() bool: whether anything has been tracked."""
        return self.weight.sum() > 0

    def shares(self) -> Tensor:
        """Share of each head in the recent selections, (bins,3) float64; NaN in a bin that nothing has reached."""
        return self.picked / self.weight[:, None]

    def centres(self) -> Tensor:
        """phi in the middle of each bin, (bins,) float64."""
        return (torch.arange(self.bins, device=self.weight.device) + 0.5).double() * (math.pi / 2 / self.bins)

    def _nearest(self) -> Tensor:
        """(bins,) int64: the filled bin nearest to each; of two, the one with less noise."""
        bins = torch.arange(self.bins, device=self.weight.device)
        gap = 2 * (bins[:, None] - bins).abs() + (bins > bins[:, None])
        return torch.where(self.weight > 0, gap, 4 * self.bins).argmin(1)
