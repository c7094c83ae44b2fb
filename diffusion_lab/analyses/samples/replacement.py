"""Which timesteps matter in generation? The true x0 in place of the model's estimate, for some of the steps.

From the noise of sample i, and the same noise at every step, image i is generated once by the model and once for each
set R of timesteps, with x0_hat = x0_i at t in R (`TrueDenoiser`). Its distance to x0_i tells what the estimates in
R contribute. Sets are ranges, and the converse of each: all timesteps except the range (Xie & Agam, Figure 3a).

Differs from Xie & Agam: the last m timesteps are never replaced. x_{t-1} = C1 x0_hat + C2 x_t + noise has C1 = 1 and
C2 = 0 at the last step, so a range with this step returns x0 exactly, whatever happened before. The paper's best range,
[1, 10], is one of these, as is [1, 500].

In super-resolution x0_i is the image whose small version the model is given. A model without such a condition generates
another image than x0_i; then the PSNR tells from which timesteps on the image is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import check_alike, check_solver, latents_of, schedule_and_images
from diffusion_lab.analyses.seeds import band_words, groups_of, with_error
from diffusion_lab.analyses.words import joined
from diffusion_lab.arguments import check_integer
from diffusion_lab.diffusion import Denoiser, Estimate, NoiseSchedule
from diffusion_lab.diffusion.denoiser import Reverse
from diffusion_lab.metrics.features import extract
from diffusion_lab.metrics.fidelity import frechet_from_statistics, statistics
from diffusion_lab.metrics.image_sets import check_extractor, check_images
from diffusion_lab.metrics.reference import reference_statistics
from diffusion_lab.metrics.sample_metrics import hue_error, psnr
from diffusion_lab.metrics.sampling import SampleNoise, check_finite
from diffusion_lab.plotting import heading, line_style, panels, picture_rows, row_names, timestep_axis
from diffusion_lab.solvers import Solver
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 12  # images of each set in the figure
MOST = 3  # groups in words
DISTANCES = (
    ("psnr", "PSNR to the truth, dB"),
    ("hue_error", "hue error, grey levels"),
    ("frechet", "Fr\N{LATIN SMALL LETTER E WITH ACUTE}chet distance to the training images"),
)
RANGES = ((1, 500), (500, 1000), (10, 100), (100, 500), (1, 10))


class Replacement(Analysis):
    """PSNR, hue error and Fréchet distance of the images for each set of replaced timesteps.

    `data.npz` has, for M models and V sets, the first of which is empty: replaced (V,T) bool; image (n,), the numbers
    of the test images; psnr (M,V,n) in dB, at most 58.9; hue_error (M,V,n) in grey levels, for images with three
    channels; frechet (M,V) to the training images, where the data set has features and n is at least twice their
    dimensions; samples (V,12,C,H,W) of the first model and truth (12,C,H,W); and the posterior's coefficients c1 and c2
    (T,). A set that is empty without the last timesteps is left out.

    Args:
        solver: how images are generated.
        ranges: first and last timestep of each range, both included; the converse of each is measured too.
        index_base: number of the least noisy timestep in `ranges`, 0 or 1; 1 in the paper.
        last: m, number of least noisy timesteps that are never replaced; 0 as in the paper, where these decide alone.
        images: n, number of test images, evenly spread; the Fréchet distance needs twice the dimensions of the
            features, 128 on digits.
        batch_size: images at a time; the noise of an image does not depend on it.

    Raises:
        ValueError: a number out of range; from `check`, a range outside the schedule, too few test images, or
            models of other schedules or test images.
    """

    def __init__(
        self,
        solver: Solver,
        ranges: Sequence[Sequence[int]] = RANGES,
        index_base: int = 1,
        last: int = 10,
        images: int = 128,
        batch_size: int = 64,
    ) -> None:
        self.solver = solver
        self.index_base = check_integer("index_base", index_base, 0, "use 1 as in the paper", maximum=1)
        if not ranges or any(len(some) != 2 or not index_base <= some[0] <= some[1] for some in ranges):
            raise ValueError(f"ranges={ranges} must be pairs of first and last timestep; use [[1,500],[500,1000]]")
        self.ranges = [(int(first), int(end)) for first, end in ranges]
        self.last = check_integer("last", last, 0, "use 10; 0 gives the truth itself for ranges with the last step")
        self.images = check_integer("images", images, 2, "use 128")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 64")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        for model in trained:
            model.check_images(self.images)
            if not model.denoiser.sees_only_x_t:
                raise ValueError(
                    f"run={model.name} must have a network that is given x_t alone: one that is given its own estimate "
                    "would have to be given the true one; use another run"
                )
        kinds = [schedule_and_images(model) for model in trained]
        check_alike(trained, kinds, "be runs with the same schedule and test images; use one at a time")
        end = trained[0].denoiser.num_timesteps - 1 + self.index_base
        if beyond := [list(some) for some in self.ranges if some[1] > end]:
            raise ValueError(f"analysis.ranges={beyond} must end at most at {end}, the noisiest timestep; use {end}")
        check_solver(self.solver, trained)
        for model in trained:
            features, source = model.data.features, model.data.source
            if features is not None and self.images >= 2 * features.feature_dim:
                check_extractor(features, source, ["fid"])
                check_images(features, source, "train", ["fid"])

    def sets(self, num_timesteps: int) -> dict[str, Tensor]:
        """(T,) bool of each set by its name; the first is empty, and no other is."""
        t = torch.arange(num_timesteps)
        free, found = t >= self.last, {"nothing": torch.zeros(num_timesteps, dtype=torch.bool)}
        inside = {some: (t + self.index_base >= some[0]) & (t + self.index_base <= some[1]) for some in self.ranges}
        found |= {f"{first} to {end}": mask & free for (first, end), mask in inside.items()}
        found |= {f"all except {first} to {end}": ~mask & free for (first, end), mask in inside.items()}
        return {name: mask for name, mask in found.items() if name == "nothing" or mask.any()}

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        sets = self.sets(trained[0].denoiser.num_timesteps)
        drawn = [model.test_images(self.images) for model in trained]
        n = len(drawn[0][0])

        def one(m: int, mask: Tensor, rows: Tensor) -> Mapping[str, np.ndarray]:
            _, x0, cond = drawn[m]
            here = {key: value[rows.to(value.device)] for key, value in cond.items()}
            return {"samples": self._generated(trained[m], mask, x0[rows.to(x0.device)], here, rows, work).numpy()}

        chunks = torch.arange(n).split(self.batch_size)
        tasks = [(m, mask, rows) for m in range(len(trained)) for mask in sets.values() for rows in chunks]
        pieces = torch.from_numpy(np.concatenate([p["samples"] for p in work.map("samples", one, tasks)]))
        samples = pieces.unflatten(0, (len(trained), len(sets), n))
        truth = trained[0].data.source.to_pixels(drawn[0][1]).cpu()
        schedule = trained[0].denoiser.schedule
        data = {
            "replaced": torch.stack([*sets.values()]).numpy(),
            "image": drawn[0][0].numpy(),
            "psnr": np.stack([[psnr(some, truth).numpy() for some in of] for of in samples]),
            "samples": samples[0, :, :SHOWN].numpy(),
            "truth": truth[:SHOWN].numpy(),
            "c1": schedule.posterior_mean_coef1.cpu().numpy(),
            "c2": schedule.posterior_mean_coef2.cpu().numpy(),
        }
        if truth.shape[1] == 3:
            data["hue_error"] = np.stack([[hue_error(some, truth).numpy() for some in of] for of in samples])
        features = trained[0].data.features
        needs = None if features is None else 2 * features.feature_dim  # images
        if needs is not None and n >= needs:
            rows = zip(trained, samples, strict=True)
            data["frechet"] = np.array([[distance(model, some) for some in of] for model, of in rows])
        asked = [f"{first} to {end}" for first, end in self.ranges]
        facts = {
            "images": n,
            "solver": self.solver.describe(),
            "sets": list(sets),
            "empty": [name for name in asked if name not in sets],
            "groups": groups_of(trained),
            "last": self.last,
            "index_base": self.index_base,
            "frechet_needs": needs,
            "paired": trained[0].data.conditions.task.paired,
            "latents": latents_of(trained[0], work).rule,
        }
        return Result(data, facts)

    def _generated(
        self, model: TrainedDiffusion, replaced: Tensor, x0: Tensor, cond: dict[str, Tensor], rows: Tensor, work: Work
    ) -> Tensor:
        """(b,C,H,W) uint8: images from the latents of the model's seed with the numbers `rows`."""
        noise = SampleNoise(latents_of(model, work).seed, rows.tolist(), tuple(x0.shape[1:]))
        denoiser = TrueDenoiser(model.denoiser, x0, replaced).eval()
        x = self.solver(denoiser, noise.start().to(x0), noise=noise, progress=False, **cond)
        return model.data.source.to_pixels(check_finite(x, rows.tolist())).cpu()

    def figure(self, result: Result) -> Figure:
        """A panel for each distance that was measured, one for the images, one for C1 and C2."""
        present = [(key, title) for key, title in DISTANCES if key in result.data]
        count, facts = len(present) + 2, result.facts
        figure, axes = panels(2, (count + 1) // 2, height=max(3.0, 0.27 * len(facts["sets"]) + 0.8), count=count)
        for axis, (key, title) in zip(axes, present, strict=False):
            _distances(axis, result, key, title)
        pictures, first = axes[len(present)], facts["groups"][0]["name"]
        picture_rows(pictures, [*result.data["samples"], result.data["truth"]], [*facts["sets"], "truth"])
        pictures.set_xticks([])
        pictures.set_title(f"images{' of ' + first if first else ''}, the same noise in each column")
        _coefficients(axes[len(present) + 1], result)
        kept = f"; never at the last {facts['last']} timesteps" if facts["last"] else ""
        heading(figure, f"true x0 in place of the estimate at some timesteps{kept} ({facts['solver']})")
        if len(facts["groups"]) > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=5)
        return figure

    def sentence(self, result: Result) -> str:
        """The PSNR of each range, the largest gain, hue error and Fréchet distance there, and what was left out."""
        facts = result.facts
        said = joined([_group(result, group) for group in facts["groups"]], MOST)
        words = band_words(facts["groups"], f"{facts['images']} images")
        kept = (
            f"the last {facts['last']} timesteps are never replaced, because C1 = 1 and C2 = 0 at the last one return "
            "the truth itself"
            if facts["last"]
            else "a set with the last timestep, where C1 = 1 and C2 = 0, returns the truth itself"
        )
        empty = f", which leaves nothing of {' and '.join(facts['empty'])}" if facts["empty"] else ""
        paired = (
            "" if facts["paired"] else "; the truth is any test image, since the model is given no small version of it"
        )
        needs = facts["frechet_needs"]
        few = f"; a Fréchet distance would need {needs} images" if needs and "frechet" not in result.data else ""
        return f"{said}; {kept}{empty}{paired}{few}; \N{PLUS-MINUS SIGN} is {words}."


def distance(model: TrainedDiffusion, samples: Tensor) -> float:
    """Fréchet distance of (n,C,H,W) uint8 to the training images of the model, in the features of its data set."""
    source, extractor = model.data.source.pixels(), model.data.features
    reference = reference_statistics(source.train(), extractor, source.name, "train", device=model.device)
    features = extract(extractor, samples, device=model.device).features
    return frechet_from_statistics(statistics(features), reference.statistics)


def _per_model(result: Result, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the images and its standard error, (M,V) each; the error is NaN for a distance of all images."""
    values = result.data[key]
    if values.ndim == 2:
        return values, np.full(values.shape, np.nan)
    return values.mean(2), values.std(2, ddof=1) / values.shape[2] ** 0.5


def _distances(axis: Axes, result: Result, key: str, title: str) -> None:
    mean, error = _per_model(result, key)
    groups, sets = result.facts["groups"], result.facts["sets"]
    for g, group in enumerate(groups):
        middle, half = with_error(mean, error, group["members"])
        place = np.arange(len(sets)) + 0.5 * (g - (len(groups) - 1) / 2) / len(groups)
        color = line_style(g).color
        bars = np.nan_to_num(half)
        axis.errorbar(middle, place, xerr=bars, color=color, linestyle="", marker="o", capsize=2, label=group["name"])
        axis.axvline(middle[0], color=color, linestyle=":", linewidth=1)
    row_names(axis, sets)
    axis.set_ylabel("timesteps with the true x0")
    axis.set_xlabel(title)
    if key != "frechet" or any(len(group["members"]) > 1 for group in groups):
        axis.set_title(f"bars: {band_words(groups, str(result.facts['images']) + ' images')}")


def _coefficients(axis: Axes, result: Result) -> None:
    """C1 and C2 by timestep, in the numbers of the ranges."""
    base = result.facts["index_base"]
    t = np.arange(len(result.data["c1"])) + base
    for i, (key, name) in enumerate((("c1", "$C_1$, of x0"), ("c2", "$C_2$, of $x_t$"))):
        axis.plot(t, result.data[key], color=line_style(i).color, label=name)
    if result.facts["last"]:
        axis.axvspan(max(t[0], 0.5), result.facts["last"] + base - 0.5, color="#DDDDDD", label="never replaced")
    timestep_axis(axis, t[0], t[-1], "timestep, 1 the least noisy" if base else "timestep t")
    axis.set_title("$x_{t-1} = C_1 x_0 + C_2 x_t$ + noise")
    axis.legend(loc="center right")


def _group(result: Result, group: dict[str, Any]) -> str:
    """With the true x0 at timesteps 10 to 100 ..."""
    sets = result.facts["sets"]
    mean, error = _per_model(result, "psnr")
    psnr, _ = with_error(mean, error, group["members"])
    ranges = [v for v, name in enumerate(sets) if v and not name.startswith("all except")]
    if not ranges:
        return f"{_start(group)} PSNR is {psnr[0]:.1f} dB, and no range is left to replace"
    best = max(ranges, key=lambda v: psnr[v])
    gain, half = _gain(result, group["members"], best)
    others = ", ".join(f"{psnr[v]:.1f} dB at {sets[v]}" for v in ranges if v != best)
    said = (
        f"{_start(group)} true x0 at timesteps {sets[best]} raises the PSNR most, from {psnr[0]:.1f} to "
        f"{psnr[best]:.1f} dB, by {gain:.1f} \N{PLUS-MINUS SIGN} {half:.1f} dB{f' ({others})' if others else ''}"
    )
    for key, name in (("hue_error", "the hue error, in grey levels,"), ("frechet", "the Fréchet distance")):
        if key in result.data:
            values = _per_model(result, key)[0][group["members"]].mean(0)
            said += f", and changes {name} from {values[0]:.3g} to {values[best]:.3g}"
    return said


def _start(group: dict[str, Any]) -> str:
    return f"{group['name']}: the" if group["name"] else "The"


def _gain(result: Result, members: list[int], v: int) -> tuple[float, float]:
    """The difference in PSNR to nothing replaced, of the same images from the same noise, and its half width."""
    difference = result.data["psnr"][:, v] - result.data["psnr"][:, 0]  # (M,n)
    error = difference.std(1, ddof=1) / np.sqrt(difference.shape[1])
    mean, half = with_error(difference.mean(1), error, members)
    return float(mean), float(half)


class TrueDenoiser(Denoiser):
    """The model, except that x0_hat = x0 and eps_hat = (x_t - alpha x0)/sigma at the timesteps in R.

    Any solver can sample with it. The true x0 is not clipped. Where the whole batch is at timesteps in R, the network
    is not called, unless it is needed for a learned variance.

    Args:
        base: the model; shares its network.
        truth: x0 (B,C,H,W), one image per row of the batches that follow.
        replaced: (T,) bool, R, by original timestep, also with a respaced schedule.
    """

    def __init__(self, base: Denoiser, truth: Tensor, replaced: Tensor) -> None:
        parts = base.prediction, base.variance, base.timesteps, base.preconditioning, base.null_label, base.time
        super().__init__(base.network, base.schedule, *parts)
        self.base = base
        self.truth, self.replaced = truth, replaced.to(base.timesteps.device)

    def estimate(self, x_t: Tensor, t: Tensor, **cond: Tensor) -> Estimate:
        known = self._known(t)
        x, alpha, sigma = self._point(x_t, t)
        eps = (x - alpha * self.truth) / sigma
        if known.all():
            return Estimate(self.truth, eps)
        found = self.base.estimate(x_t, t, **cond)
        return Estimate(torch.where(known, self.truth, found.x0), torch.where(known, eps, found.eps))

    def reverse(self, x_t: Tensor, t: Tensor, clip: bool = False, **cond: Tensor) -> Reverse:
        known = self._known(t)
        if known.all() and not self.variance.channels:
            mean = self.schedule.posterior_mean(self.truth, x_t, t)
            return Reverse(mean, self.variance.log_variance(x_t[:, :0], t, self.schedule), self.truth)
        found = self.base.reverse(x_t, t, clip, **cond)
        x0 = torch.where(known, self.truth, found.x0)
        return Reverse(self.schedule.posterior_mean(x0, x_t, t), found.log_variance, x0)

    def _known(self, t: Tensor) -> Tensor:
        """(B,1,1,1) bool."""
        return self.replaced[self.timesteps[t]].view(-1, 1, 1, 1)

    def _with(self, network: torch.nn.Module, schedule: NoiseSchedule, timesteps: Tensor) -> Denoiser:
        return TrueDenoiser(self.base._with(network, schedule, timesteps), self.truth, self.replaced)
