"""Which timesteps the learned Beta sampler selects, and how well they stand for the whole bound.

The sampler rewards its policy with the drop of the bound on a few timesteps S in place of all T. R^2, the squared
correlation of the two drops, is measured on updates that S was not chosen from:

    next update     one image's drops at policy update j against S from the rows before j (`policy_updates.py`),
                    over all j of the run
    next interval   drops of training images from one checkpoint to the next against S from the queue of the first,
                    over the images, and the mean over intervals

for the sampler's own number of timesteps and for others, chosen in the same way, and for as many evenly spaced
timesteps as a control. The cost of a choice is counted in rows of network calls of one policy update,
2 (P + ceil(B / reward_every) |S|): seconds are those of a machine and would differ when repeated; the report's column
`cost` has them for runs with other `sampler.num_selected`.

Reference: Kim et al., "Adaptive Non-uniform Timestep Sampling for Accelerating Diffusion Model Training", CVPR 2025,
Figure 7. Differs from it: it has the FID after training with each |S|, this has what S predicts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.images import check_training_images, native_losses, training_images
from diffusion_lab.analyses.policy.policy_updates import (
    Queue,
    evenly_spaced,
    history,
    jackknife_r2,
    of_intervals,
    read_queue,
    selection_at,
)
from diffusion_lab.analyses.seeds import band_words, group_band, groups_of
from diffusion_lab.analyses.words import capitalised, joined, plus_minus
from diffusion_lab.arguments import check_integer
from diffusion_lab.plotting import heading, line_style, panels
from diffusion_lab.runs.find import read_run
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PASSES = 3  # forward passes in the time of a training row: its backward pass takes twice its forward pass
KINDS = (("r2_next", "the next update"), ("r2_interval", "the next interval"))
WIDE = 100  # timesteps; S beyond is drawn on a logarithmic axis


class Selection(Analysis):
    """S over training, and R^2 of the drop on S and of the drop of the bound by |S|.

    `data.npz` has, of R runs and at most U policy updates, padded with NaN: step (R,U); selected (R,U,|S|), -1 where
    the checkpoints do not have the rows before it; drop (R,U), of the bound, bits/dim; drop_on (R,U,K,2) on K numbers
    of timesteps, selected and evenly spaced; size (R,K), the numbers, the sampler's own first; rows (R,K) of network
    calls of a policy update; r2_next and r2_interval (R,K,2) with their NAME_error: the jackknife's over updates, and
    the standard error over intervals.

    Args:
        sizes: numbers of timesteps besides the sampler's own, increasing.
        images: number of training images whose drops are measured between checkpoints, at least 3.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, a run of another sampler, averaged weights, fewer than two
            checkpoints of a run, or fewer training images.
    """

    def __init__(self, sizes: Sequence[int] = (1, 2, 3, 5, 10, 20), images: int = 32, batch_size: int = 256) -> None:
        cure = "use [1,2,3,5,10,20]"
        self.sizes = [check_integer("sizes", size, 1, cure) for size in sizes]
        if sorted(set(self.sizes)) != self.sizes or not self.sizes:
            raise ValueError(f"sizes={self.sizes} must increase; {cure}")
        self.images = check_integer("images", images, 3, "use 32; a correlation needs three")
        self.batch_size = check_integer("batch_size", batch_size, 1, "use 256")

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        cure = "use checkpoint=[step-00000500,last] weights=raw of a run with keep_every=500"
        for models in _runs(trained):
            name = models[0].name
            queues = [read_queue(model) for model in models]
            if len({model.step for model in models}) < 2:
                raise ValueError(f"checkpoint={models[0].step} must be at least two of {name}; {cure}")
            if any(model.decay is not None for model in models):
                raise ValueError(f"weights=ema must be raw, because the reward is of the weights themselves; {cure}")
            if max(self.sizes) > len(queues[0].grid):
                raise ValueError(f"analysis.sizes={self.sizes} must be at most {len(queues[0].grid)}; leave some out")
        check_training_images(trained, self.images)

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        runs = _runs(trained)

        def one(r: int, m: int) -> Mapping[str, np.ndarray]:
            model = runs[r][m]
            images, grid = training_images(model, self.images), read_queue(model).grid
            return {"losses": native_losses(model.denoiser, images, grid, self.batch_size, work)}

        tasks = [(r, m) for r, models in enumerate(runs) for m in range(len(models))]
        losses: list[list[np.ndarray]] = [[] for _ in runs]
        for (r, _), piece in zip(tasks, work.map("losses", one, tasks), strict=True):
            losses[r].append(piece["losses"])
        found = [self._of_run(models, some) for models, some in zip(runs, losses, strict=True)]
        data = {key: _padded([one[key] for one in found]) for key in found[0]}
        firsts = [models[-1] for models in runs]
        facts = {"images": self.images, "checkpoints": [[model.step for model in models] for models in runs]}
        return Result(data, facts | {"groups": _groups(firsts, data)})

    def _of_run(self, models: Sequence[TrainedDiffusion], losses: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        queues = [read_queue(model) for model in models]
        own = len(queues[0].selected)
        sizes = [own, *self.sizes]
        found = self._updates(queues, sizes)
        r2, error = jackknife_r2(found["drop_on"], found["drop"])
        intervals = of_intervals(losses, queues, sizes)
        settings, batch = queues[0].settings, models[0].data.batch_size
        rewarded = -(-batch // settings["reward_every"])
        return found | {
            "size": np.array(sizes, dtype=float),
            "rows": np.array([2.0 * (len(queues[0].grid) + rewarded * size) for size in sizes]),
            "r2_next": r2,
            "r2_next_error": error,
            "r2_interval": intervals.mean(0),
            "r2_interval_error": _standard_error(intervals),
        }

    def _updates(self, queues: Sequence[Queue], sizes: Sequence[int]) -> dict[str, np.ndarray]:
        """At each policy update whose row or S is known: its step, S, and the drops on S and in all."""
        rows, queue = history(queues), queues[0]
        own, every = sizes[0], queue.settings["every"]
        numbers = sorted(rows.keys() | {queue.filled for queue in queues})  # after a checkpoint S is known, not the row
        drop = np.full(len(numbers), np.nan)
        selected = np.full((len(numbers), own), -1.0)
        drop_on = np.full((len(numbers), len(sizes), 2), np.nan)
        for u, number in enumerate(numbers):
            row = rows[number][None] if number in rows else None
            drop[u] = np.nan if row is None else float(queue.bound_drops(row))
            for k, size in enumerate(sizes):
                chosen = selection_at(number, rows, queue, size)
                if k == 0 and chosen is not None:
                    selected[u] = chosen
                if chosen is not None and row is not None and number >= queue.settings["select_from"]:
                    spaced = evenly_spaced(len(queue.weights), size)
                    drop_on[u, k] = [float(queue.drops(row, some)) for some in (chosen, spaced)]
        return {"step": np.array(numbers, dtype=float) * every, "selected": selected, "drop": drop, "drop_on": drop_on}

    def figure(self, result: Result) -> Figure:
        """S over training, and for both kinds of updates R^2 by the cost of a policy update."""
        figure, axes = panels(3, height=3.6)
        for g, group in enumerate(result.facts["groups"]):
            drawn = line_style(g)
            for r in group["members"]:
                steps, selected = result.data["step"][r], result.data["selected"][r]
                steps = np.repeat(steps[:, None], selected.shape[1], 1)
                shown = np.where(selected >= 0, selected, np.nan)
                axes[0].plot(steps, shown, color=drawn.color, linestyle="", marker="o", markersize=3, alpha=0.7)
            axes[0].plot([], [], color=drawn.color, linestyle="", marker="o", label=group["name"] or "selected")
            for axis, (key, _) in zip(axes[1:], KINDS, strict=True):
                _by_cost(axis, result, group, key, drawn.color)
        if result.data["selected"].max() > WIDE:
            axes[0].set_yscale("symlog", linthresh=10)
            axes[0].yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes[0].set_ylim(bottom=-0.5)
        axes[0].set_ylabel("timestep t")
        axes[0].set_xlabel("optimizer step")
        axes[0].set_title("selected timesteps S")
        for axis, (_, name) in zip(axes[1:], KINDS, strict=True):
            axis.set_ylim(0, 1.12)
            axis.set_xscale("log")
            axis.minorticks_off()
            ticks = sorted({cost for group in result.facts["groups"] for cost in _cost(group)[0]})
            shown = ticks[:: max(1, len(ticks) // 3)]
            axis.set_xticks(shown, [f"{tick:.3g}" for tick in shown])
            axis.set_xlabel(_cost(result.facts["groups"][0])[1])
            axis.set_title(f"R\N{SUPERSCRIPT TWO} of the bound's drop in {name}")
        axes[2].plot([], [], color="#222222", marker="o", label="S by the F-test")
        axes[2].plot([], [], color="#222222", marker="x", linestyle=":", label="evenly spaced")
        axes[2].legend(loc="lower right", fontsize=8)
        points = "right: numbers beside the points: how many timesteps in S; ring: the sampler's own"
        heading(figure, f"{points}; bars: {_error_words(result)}")
        if len(result.facts["groups"]) > 1:
            figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", ncols=5)
        return figure

    def sentence(self, result: Result) -> str:
        """Which timesteps stand for the bound, how well, and what more of them would add."""
        text = joined([_said(result, group) for group in result.facts["groups"]])
        return f"{capitalised(text)} (\N{PLUS-MINUS SIGN}: {_error_words(result)})."


def _runs(trained: Sequence[TrainedDiffusion]) -> list[list[TrainedDiffusion]]:
    """The models of each run, by step."""
    runs: dict[Any, list[TrainedDiffusion]] = {}
    for model in trained:
        runs.setdefault(model.folder.resolve(), []).append(model)
    return [sorted(models, key=lambda model: model.step) for models in runs.values()]


def _padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """(R,...) of arrays whose lengths differ, with NaN behind the shorter ones."""
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    padded = np.full((len(arrays), *shape), np.nan)
    for row, array in zip(padded, arrays, strict=True):
        row[tuple(slice(size) for size in array.shape)] = array
    return padded


def _standard_error(values: np.ndarray) -> np.ndarray:
    """Over the first axis; NaN for a single value."""
    n = len(values)
    return values.std(0, ddof=1) / math.sqrt(n) if n > 1 else np.full(values.shape[1:], np.nan)


def _groups(runs: Sequence[TrainedDiffusion], data: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The groups of seeds, the timesteps that each selects most, and the cost of its policy updates."""
    groups = []
    for group in groups_of(runs):
        members = group["members"]
        group["sizes"] = data["size"][members[0]].tolist()
        chosen = data["selected"][members]
        chosen = chosen[chosen >= 0]
        t, counts = np.unique(chosen, return_counts=True)
        often = t[np.argsort(-counts, kind="stable")][:3]
        group["often"] = [int(value) for value in often]
        group["quantiles"] = [int(value) for value in np.quantile(chosen, [0.05, 0.5, 0.95])]
        group["rows"] = data["rows"][members[0]].tolist()
        rates = [rate for m in members if (rate := read_run(runs[m].folder).images_per_second)]
        group["seconds_per_row"] = 1 / (PASSES * float(np.mean(rates))) if rates else None
        groups.append(group)
    if any(group["seconds_per_row"] is None for group in groups):  # one axis has one unit
        groups = [group | {"seconds_per_row": None} for group in groups]
    return groups


def _error_words(result: Result) -> str:
    """What the bars are, and the numbers after the sentence's plus-minus signs."""
    return band_words(result.facts["groups"], "updates, and over intervals")


def _cost(group: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Cost of a policy update by number of timesteps, and its unit: seconds if the run has recorded its rate."""
    rows, seconds = np.array(group["rows"]), group["seconds_per_row"]
    if seconds is None:
        return rows, "policy update, rows of network calls"
    return rows * seconds, "policy update, seconds (estimated)"


def _by_cost(axis: Axes, result: Result, group: Mapping[str, Any], key: str, color: str) -> None:
    """R^2 by cost, of selected and evenly spaced timesteps."""
    rows, sizes = _cost(group)[0], np.array(group["sizes"])
    value, half = group_band(result.data, key, group)
    order = 1 + np.argsort(rows[1:])  # the first is the sampler's own
    axis.errorbar(rows[order], value[order, 0], half[order, 0], color=color, marker="o", markersize=4, elinewidth=0.8)
    axis.plot(rows[order], value[order, 1], color=color, marker="x", markersize=4, linestyle=":", linewidth=1.2)
    axis.plot(rows[:1], value[:1, 0], color=color, marker="o", markersize=11, fillstyle="none", linestyle="")
    for k in order:
        if np.isfinite(value[k, 0]):
            axis.annotate(f"{sizes[k]:g}", (rows[k], value[k, 0]), (0, 6), textcoords="offset points", fontsize=8)


def _said(result: Result, group: Mapping[str, Any]) -> str:
    of = f"for {group['name']} " if group["name"] else ""
    own = f"{group['sizes'][0]:g}"
    often = ", ".join(map(str, group["often"]))
    low, middle, high = group["quantiles"]
    next_, interval = (_value(*group_band(result.data, key, group), 0, 0) for key, _ in KINDS)
    control = _value(*group_band(result.data, "r2_next", group), 0, 1)
    return (
        f"{of}S of {own} timesteps has its median at t = {middle} (90 % in {low} to {high}, most often {often}), and "
        f"its drop explains R\N{SUPERSCRIPT TWO} = {next_} of the bound's drop in the next update, where as many "
        f"evenly spaced ones explain {control}, and {interval} in the next interval between checkpoints"
        f"{_most(result, group)}"
    )


def _most(result: Result, group: Mapping[str, Any]) -> str:
    """Which number of timesteps predicts the next update best, and at what cost."""
    r2, half = group_band(result.data, "r2_next", group)
    if np.isnan(r2[1:, 0]).all():
        return ""
    most = 1 + int(np.nanargmax(r2[1:, 0]))
    return (
        f"; the most in the next update, {_value(r2, half, most, 0)}, have {group['sizes'][most]:g} timesteps "
        f"at {group['rows'][most] / group['rows'][0]:.3g} times the rows"
    )


def _value(r2: np.ndarray, half: np.ndarray, k: int, kind: int) -> str:
    """One R^2 with half the width of its interval."""
    return plus_minus(float(r2[k, kind]), float(half[k, kind]), "a part that too few known updates tell")
