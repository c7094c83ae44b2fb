"""Which timesteps matter in generation? The true x0 in place of the model's estimate, for some of the steps.

From the noise of sample i, and the same noise at every step, image i is generated once by the model and once for each
set R of timesteps, with x0_hat = x0_i at t in R (`true_denoiser.py`). Its distance to x0_i tells what the estimates in
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

from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.generation import check_solver
from diffusion_lab.analyses.replacement_figure import figure_of
from diffusion_lab.analyses.replacement_words import sentence_of
from diffusion_lab.analyses.seeds import groups_of
from diffusion_lab.analyses.true_denoiser import TrueDenoiser
from diffusion_lab.arguments import check_integer
from diffusion_lab.metrics.features import extract
from diffusion_lab.metrics.fidelity import frechet_from_statistics, statistics
from diffusion_lab.metrics.reference import reference_statistics
from diffusion_lab.metrics.sample_metrics import hue_error, psnr
from diffusion_lab.metrics.sampling import SampleNoise
from diffusion_lab.solvers import Solver
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.work import Work

SHOWN = 12  # images of each set in the figure
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
        ranges: first and last timestep of each range, both included.
        index_base: number of the least noisy timestep in `ranges`; 1 in the paper.
        last: m, the least noisy timesteps that are never replaced; 0 as in the paper.
        images: n, test images, evenly spread.
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

    def check(self, trained: Sequence[Trained]) -> None:
        for model in trained:
            model.check_images(self.images)
        kinds = {(tuple(m.denoiser.schedule.snr.tolist()), m.data.source.test().fingerprint()) for m in trained}
        if len(kinds) > 1:
            names = ",".join(dict.fromkeys(model.name for model in trained))
            raise ValueError(f"run={names} must be runs with the same schedule and test images; use one at a time")
        end = trained[0].denoiser.num_timesteps - 1 + self.index_base
        if beyond := [list(some) for some in self.ranges if some[1] > end]:
            raise ValueError(f"analysis.ranges={beyond} must end at most at {end}, the noisiest timestep; use {end}")
        check_solver(self.solver, trained)

    def sets(self, num_timesteps: int) -> dict[str, Tensor]:
        """(T,) bool of each set by its name; the first is empty, and no other is."""
        t = torch.arange(num_timesteps)
        free, found = t >= self.last, {"nothing": torch.zeros(num_timesteps, dtype=torch.bool)}
        inside = {some: (t + self.index_base >= some[0]) & (t + self.index_base <= some[1]) for some in self.ranges}
        found |= {f"{first} to {end}": mask & free for (first, end), mask in inside.items()}
        found |= {f"all except {first} to {end}": ~mask & free for (first, end), mask in inside.items()}
        return {name: mask for name, mask in found.items() if name == "nothing" or mask.any()}

    def run(self, trained: Sequence[Trained], work: Work) -> Result:
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
        facts = self._facts(trained, list(sets), n)
        if facts["frechet_needs"] is not None and n >= facts["frechet_needs"]:
            rows = zip(trained, samples, strict=True)
            data["frechet"] = np.array([[distance(model, some) for some in of] for model, of in rows])
        return Result(data, facts)

    def _facts(self, trained: Sequence[Trained], sets: list[str], images: int) -> dict[str, Any]:
        asked = [f"{first} to {end}" for first, end in self.ranges]
        features = trained[0].data.features
        return {
            "images": images,
            "solver": self.solver.describe(),
            "sets": sets,
            "empty": [name for name in asked if name not in sets],
            "groups": [group._asdict() for group in groups_of(trained)],
            "last": self.last,
            "index_base": self.index_base,
            "frechet_needs": None if features is None else 2 * features.feature_dim,  # images
            "paired": trained[0].data.conditions.task.paired,
        }

    def _generated(
        self, model: Trained, replaced: Tensor, x0: Tensor, cond: dict[str, Tensor], rows: Tensor, work: Work
    ) -> Tensor:
        """(b,C,H,W) uint8: images from the latents with the numbers `rows`."""
        noise = SampleNoise(work.streams.seed, rows.tolist(), tuple(x0.shape[1:]))
        denoiser = TrueDenoiser(model.denoiser, x0, replaced).eval()
        x = self.solver(denoiser, noise.start().to(x0), noise=noise, progress=False, **cond)
        return model.data.source.to_pixels(x).cpu()

    def figure(self, result: Result) -> Figure:
        return figure_of(result)

    def sentence(self, result: Result) -> str:
        return sentence_of(result)


def distance(model: Trained, samples: Tensor) -> float:
    """Fréchet distance of (n,C,H,W) uint8 to the training images of the model, in the features of its data set."""
    source, extractor = model.data.source.pixels(), model.data.features
    reference = reference_statistics(source.train(), extractor, source.name, "train", device=model.device)
    return frechet_from_statistics(
        statistics(extract(extractor, samples, device=model.device).features), reference.statistics
    )
