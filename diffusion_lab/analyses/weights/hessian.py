"""The spectrum of the Hessian of a model's loss: extreme eigenvalues, trace and density.

    H = d^2 L / d theta^2,     L the mean over images and over timesteps of the native loss

("Why diffusion models are stable and how to make them faster", figure 4). Stochastic Lanczos quadrature (`lanczos.py`)
gives the eigenvalues and the density. The trace is Hutchinson's: the mean of z^T H z over z uniform on {-1, 1}^P, with
its standard error over the draws. H need not be positive; nothing here takes a root or a logarithm of an eigenvalue.

The mean and the variance of the density are tr H / P and |H|_F^2 / P - (tr H / P)^2: they depend on the number P of
parameters. Two networks of different size are compared by their eigenvalues and by tr H, not by the density's spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.seeds import band_words, groups_of, over_seeds, with_error
from diffusion_lab.analyses.weights.lanczos import HessianVector, Ritz, density, lanczos, largest, ritz, smallest
from diffusion_lab.analyses.weights.weight_space import doubled
from diffusion_lab.analyses.words import capitalised, joined, plus_minus
from diffusion_lab.arguments import check_flag, check_integer, check_number
from diffusion_lab.plotting import heading, line_style, panels
from diffusion_lab.training import FixedSetLoss, TrainedModel
from diffusion_lab.training.trained_model import TIMESTEPS, check_timesteps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GRID = 801  # values of lambda at which the density is given
MARGIN = 0.05  # of the range, beyond the extreme Ritz values
FLAT = 0.01  # an eigenvalue below this share of the largest magnitude is called flat
DRAWS = 8  # of the trace, in one task


class Hessian(Analysis):
    """Spectrum of each model's loss.

    `data.npz` has, for M models and V start vectors: largest, smallest, largest_error, smallest_error (M,k), the
    extreme eigenvalues by signed size (descending, ascending) with bounds of their errors; by_magnitude (M,k), the same
    ones by magnitude; trace and trace_standard_error (M,), from the draws quadratic (M,D) of z^T H z; parameters (M,);
    ritz_values and ritz_weights (M,V,m), padded with NaN; density (M,V,G) on the common grid eigenvalue (G,), and the
    width of its Gaussians; flat (M,V), the share of eigenvalues below 1 % of the largest magnitude.

    Differs from pyhessian: the density's Gaussians are `width` times the range of the spectrum wide, not sqrt(1e-5
    max(1, range)), so that it does not depend on the scale of the loss; 3 start vectors instead of 1.

    Args:
        timesteps: those at which a diffusion model is evaluated, on a scale of 1000; H is that of their mean loss.
        images: number of test images, evenly spread.
        vectors: V, number of start vectors of Lanczos, at least 3.
        steps: Lanczos iterations of each.
        draws: D, number of draws for the trace, at least 2.
        count: k, number of eigenvalues at each end of the spectrum; at most half of those that `steps` finds.
        width: standard deviation of the density's Gaussians, in units of the range of the spectrum.
        double: whether to compute in float64, at about twice the time.
        batch_size: rows of one network call; a single call for images x timesteps is fastest.

    Raises:
        ValueError: a number out of range.
    """

    models = TrainedModel

    def __init__(
        self,
        timesteps: Sequence[int] = TIMESTEPS,
        images: int = 8,
        vectors: int = 3,
        steps: int = 30,
        draws: int = 24,
        count: int = 10,
        width: float = 0.01,
        double: bool = False,
        batch_size: int = 256,
    ) -> None:
        self.timesteps = check_timesteps(timesteps)
        self.images = check_integer("images", images, 1, "use 8")
        self.vectors = check_integer("vectors", vectors, 3, "use 3; the density of one vector says little")
        self.steps = check_integer("steps", steps, 2, "use 30")
        self.draws = check_integer("draws", draws, 2, "use 24; a standard error needs two")
        self.count = check_integer("count", count, 1, "use 10")
        self.width = check_number("width", width, "()", 0, 1, "use 0.01")
        self.double = check_flag("double", double, "use true to check the rounding")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[TrainedModel]) -> None:
        for model in trained:
            model.check_images(self.images)

    def run(self, trained: Sequence[TrainedModel], work: Work) -> Result:
        def loss_of(m: int) -> FixedSetLoss:
            return trained[m].fixed_set_loss(self.timesteps, self.images, work.normal, self.batch_size)

        def signs(hvp: HessianVector, kind: int, number: int) -> Tensor:
            drawn = work.normal((hvp.size,), kind, number).sign()
            return drawn.double() if self.double else drawn

        def vector(m: int, number: int) -> dict[str, np.ndarray]:
            with doubled(trained[m].module) if self.double else nullcontext():
                hvp = HessianVector(trained[m].module, loss_of(m))
                alphas, betas = lanczos(hvp, signs(hvp, 0, number), self.steps)
            return {"alphas": alphas.numpy(), "betas": betas.numpy(), "parameters": np.array(hvp.size)}

        def trace(m: int, task: int) -> dict[str, np.ndarray]:
            numbers = range(self.draws)[task * DRAWS : (task + 1) * DRAWS]
            with doubled(trained[m].module) if self.double else nullcontext():
                hvp = HessianVector(trained[m].module, loss_of(m))
                drawn = [signs(hvp, 1, number) for number in numbers]
                return {"quadratic": np.array([float((z @ hvp(z)).double()) for z in drawn])}

        chains = work.nested("vectors", vector, len(trained), self.vectors)
        pieces = work.nested("trace", trace, len(trained), -(-self.draws // DRAWS))
        quadratic = np.stack([np.concatenate([piece["quadratic"] for piece in some]) for some in pieces])
        data = self._numbers([[ritz(one["alphas"], one["betas"]) for one in some] for some in chains], quadratic)
        parameters = np.array([int(some[0]["parameters"]) for some in chains])
        facts = {
            "groups": groups_of(trained),
            "images": self.images,
            "losses": [list(loss_of(m).names) for m in range(len(trained))],
            "vectors": self.vectors,
            "draws": self.draws,
            "order": "signed size, largest first and smallest first; by_magnitude: |eigenvalue|, largest first",
        }
        return Result(data | {"parameters": parameters}, facts)

    def _numbers(self, found: Sequence[Sequence[Ritz]], quadratic: np.ndarray) -> dict[str, np.ndarray]:
        """What `data.npz` holds, from the Ritz pairs of each model and vector and the draws (M,D) of the trace."""
        known = min(len(one.values) for some in found for one in some)
        count = max(1, min(self.count, known // 2))  # none of them at both ends
        ends = [(*largest(some, count), *smallest(some, count)) for some in found]
        top, top_error, low, low_error = (_stacked(values) for values in zip(*ends, strict=True))
        reach = np.nanmin(low), np.nanmax(top)
        margin = MARGIN * (reach[1] - reach[0])
        grid = np.linspace(reach[0] - margin, reach[1] + margin, GRID)
        width = self.width * max(reach[1] - reach[0], np.finfo(float).tiny)
        strongest = np.maximum(np.abs(top[:, 0]), np.abs(low[:, 0]))
        both = np.concatenate([top, low], 1)
        order = np.argsort(-np.abs(both), axis=1, kind="stable")[:, : self.count]
        return {
            "largest": top,
            "largest_error": top_error,
            "smallest": low,
            "smallest_error": low_error,
            "by_magnitude": np.take_along_axis(both, order, 1),
            "quadratic": quadratic,
            "trace": quadratic.mean(1),
            "trace_standard_error": quadratic.std(1, ddof=1) / quadratic.shape[1] ** 0.5,
            "eigenvalue": grid,
            "width": np.array(width),
            "density": np.stack([density(some, grid, width) for some in found]),
            "ritz_values": np.stack([_stacked([one.values for one in some], self.steps) for some in found]),
            "ritz_weights": np.stack([_stacked([one.weights for one in some], self.steps) for some in found]),
            "flat": np.array(
                [
                    [one.weights[np.abs(one.values) < FLAT * most].sum() for one in some]
                    for some, most in zip(found, strongest, strict=True)
                ]
            ),
        }

    def figure(self, result: Result) -> Figure:
        """Left the density of the eigenvalues, right the extreme ones by rank."""
        from matplotlib.ticker import MaxNLocator

        figure, (left, right) = panels(2, height=3.8)
        for g, group in enumerate(result.facts["groups"]):
            drawn = line_style(g)
            _density(left, result, group, drawn.color, drawn.dash)
            _ranks(right, result, group, drawn.color)
        lowest = 0.3 * _of_one(result)
        left.set_yscale("log")
        left.set_ylim(lowest, 3 * float(result.data["density"].max()))
        left.axvline(0, color="#999999", linewidth=0.8)
        left.set_xlabel("eigenvalue")
        left.set_ylabel("density of the eigenvalues")
        left.set_title(f"thin: from each of {result.facts['vectors']} start vectors; dotted: one eigenvalue")
        left.axhline(_of_one(result), color="#999999", linewidth=0.8, linestyle=":")
        right.axhline(0, color="#999999", linewidth=0.8)
        strongest = max(np.nanmax(np.abs(result.data["by_magnitude"])), 1e-300)
        right.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(strongest)) / 100)
        low, high = right.get_ylim()  # with room beyond the outermost markers of a logarithmic axis
        right.set_ylim(low * (2 if low < 0 else 0.5), high * (2 if high > 0 else 0.5))
        right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        right.set_xlabel("rank")
        right.set_title(
            "\N{BLACK UP-POINTING TRIANGLE} largest and \N{BLACK DOWN-POINTING TRIANGLE} smallest eigenvalues"
        )
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        heading(figure, heading_of(result))
        if len(result.facts["groups"]) > 1:
            figure.legend(*right.get_legend_handles_labels(), loc="outside lower left", ncols=3, handlelength=3)
        return figure

    def sentence(self, result: Result) -> str:
        facts, sizes = result.facts, sorted(set(result.data["parameters"].tolist()))
        said = joined([_group(result, group) for group in facts["groups"]])
        over = band_words(facts["groups"], f"{facts['draws']} draws")
        text = f"{capitalised(said)}; \N{PLUS-MINUS SIGN} is {over}"
        if len(sizes) > 1:
            numbers = " and ".join(f"{size:,}" for size in sizes)
            text += (
                f"; with {numbers} parameters only eigenvalues and traces can be compared, not the densities' spread"
            )
        return f"{text}."


def _group(result: Result, group: dict[str, Any]) -> str:
    """What is said of one group."""
    data, members = result.data, group["members"]
    first, last = (float(data[key][members, 0].mean()) for key in ("largest", "smallest"))
    trace, half = (float(v) for v in with_error(data["trace"], data["trace_standard_error"], members))
    mean, spread = (float(v) for v in over_seeds(data["largest"][:, 0], members))
    flat = 100 * float(data["flat"][members].mean())
    of = f" of {group['name']}" if group["name"] else ""
    share = f"{abs(last) / first:.2g} of it in magnitude" if first > 0 > last else "not negative"
    size = f"{data['parameters'][members[0]]:,}"
    return (
        f"the largest eigenvalue of the Hessian{of} is {plus_minus(mean, spread)} and the smallest {last:.3g}, "
        f"{share}; the trace is {plus_minus(trace, half)}, and {flat:.4g} % of the {size} eigenvalues are below "
        f"{100 * FLAT:g} % of the largest magnitude: {_meaning(flat, first, last)}"
    )


def _meaning(flat: float, first: float, last: float) -> str:
    shape = "a saddle" if first > 0 > last and -last > 0.1 * first else "a valley" if first > 0 else "a summit"
    return f"{shape}, {'flat but for a few directions' if flat > 90 else 'curved in many directions'}"


def _stacked(rows: Sequence[np.ndarray], width: int | None = None) -> np.ndarray:
    """Rows of different lengths as one array, padded with NaN."""
    width = max(map(len, rows)) if width is None else width
    return np.stack([np.pad(row, (0, width - len(row)), constant_values=np.nan) for row in rows])


def heading_of(result: Result) -> str:
    """The loss of each group, what the bars are, and a warning where the networks differ in size."""
    groups, losses = result.facts["groups"], result.facts["losses"]
    said = dict.fromkeys(_loss(losses[group["members"][0]]) for group in groups)
    alone = [len(group["members"]) == 1 for group in groups]
    intervals = "" if all(alone) else band_words(groups, "").partition(";")[0]
    words = " and, of one seed, ".join(filter(None, [intervals, "bounds of the numerical error" * any(alone)]))
    sizes = set(result.data["parameters"].tolist())
    note = "; networks of different size: do not compare the densities' widths" if len(sizes) > 1 else ""
    return f"Hessian of {' or '.join(said)}, {result.facts['images']} images; bars: {words}{note}"


def _loss(names: Sequence[str]) -> str:
    """`the mean loss at t = 0, 10, 50`, or the name of a single one."""
    if len(names) == 1:
        return f"the {names[0]}" if " = " not in names[0] else f"the loss at {names[0]}"
    return f"the mean loss at t = {', '.join(name.removeprefix('t = ') for name in names)}"


def _density(axis: Axes, result: Result, group: dict[str, Any], color: str, dash: str) -> None:
    grid, members = result.data["eigenvalue"], group["members"]
    each = result.data["density"][members]  # (m,V,G)
    for line in each.reshape(-1, len(grid)):
        axis.plot(grid, line, color=color, linewidth=0.6, alpha=0.5)
    axis.plot(grid, each.mean((0, 1)), color=color, linestyle=dash)


def _ranks(axis: Axes, result: Result, group: dict[str, Any], color: str) -> None:
    size, members = result.data["parameters"][group["members"][0]], group["members"]
    for key, marker in (("largest", "^"), ("smallest", "v")):
        values, half = over_seeds(result.data[key], members)
        half = result.data[f"{key}_error"][members[0]] if len(members) == 1 else half
        name = f"{group['name'] or 'model'}, {size:,} parameters" if key == "largest" else None
        rank = 1 + np.arange(len(values))
        values = np.where(values * values[0] > 0, values, np.nan)  # beyond 0 a Ritz value is inside the spectrum
        axis.errorbar(rank, values, half, color=color, marker=marker, linestyle="", markersize=5, label=name)


def _of_one(result: Result) -> float:
    """Height of the density of a single eigenvalue of the largest network."""
    return float(1 / (result.data["parameters"].max() * result.data["width"] * np.sqrt(2 * np.pi)))
