"""The slots of equal loss of a checkpoint: K ranges of timesteps, each with the same part of sum_t L_t.

L_t is the native loss at every single timestep, as `per_timestep` measures it, and the edges are those of
`timesteps.equal_sum_slots` (Xie & Agam, section 2.1 and Table 1). A curve over ranges of 50 timesteps cannot show a
slot of five.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from diffusion_lab.analyses.base import Analysis, Result, Work
from diffusion_lab.analyses.losses.per_timestep import PerTimestep
from diffusion_lab.analyses.seeds import lines_of
from diffusion_lab.analyses.words import capitalised, joined
from diffusion_lab.arguments import check_integer
from diffusion_lab.plotting import line_style, log_axis, panels, timestep_axis
from diffusion_lab.timesteps import equal_sum_slots
from diffusion_lab.training import TrainedDiffusion

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 5  # tables beside one another
HEIGHT = 0.3  # inches of a row


class Slots(Analysis):
    """Edges of the slots of each curve, the mean loss of one head over the seeds of a method, and what each slot holds.

    `facts.json` has the edges of each curve, where slot k is {e_k .. e_{k+1} - 1}, and share, each slot's part of the
    loss. `data.npz` has timesteps (T,), mean and standard_error (M,T,heads) of the losses of M models, which
    `sampler.loss_curve` can read, and edges (M,heads,K+1) of each of them alone.

    Args:
        num_slots: K, number of slots.
        images: number of test images, evenly spread, at least 2.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, models whose losses cannot share an axis, or with fewer
            timesteps than slots.
    """

    def __init__(self, num_slots: int = 10, images: int = 64, batch_size: int = 256) -> None:
        self.num_slots = check_integer("num_slots", num_slots, 1, "use 10")
        self.losses = PerTimestep(images, 1, batch_size)

    def check(self, trained: Sequence[TrainedDiffusion]) -> None:
        self.losses.check(trained)
        steps = trained[0].denoiser.num_timesteps
        if self.num_slots > steps:
            raise ValueError(f"analysis.num_slots={self.num_slots} must be at most the {steps} timesteps; use 10")

    def run(self, trained: Sequence[TrainedDiffusion], work: Work) -> Result:
        found = self.losses.measure(trained, work)
        mean = found["mean"]  # (M,T,heads)
        edges = np.stack([[self._slots(one)[0] for one in model.T] for model in mean])
        curves = []
        for line in lines_of(trained):
            own, share = self._slots(mean[line["members"], :, line["head"]].mean(0))
            first, last = (edges[line["members"], line["head"], k] for k in (1, -2))
            among = {
                "first_end": [int(first.min()), int(first.max())],
                "last_start": [int(last.min()), int(last.max())],
            }
            curves.append(line | {"edges": own.tolist(), "share": share.tolist(), "over_seeds": among})
        data = {key: found[key] for key in ("timesteps", "mean", "standard_error")} | {"edges": edges}
        return Result(data, {"images": len(found["image"]), "num_slots": self.num_slots, "curves": curves})

    def _slots(self, loss: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Edges (K+1,) of a loss (T,), and the part of it in each slot (K,)."""
        edges = equal_sum_slots(torch.from_numpy(np.ascontiguousarray(loss)), self.num_slots).numpy()
        before = np.concatenate([[0.0], loss.cumsum()])
        return edges, np.diff(before[edges]) / before[-1]

    def figure(self, result: Result) -> Figure:
        curves = result.facts["curves"]
        figure, (axis, table) = panels(2, height=max(3.6, HEIGHT * (self.num_slots + 4)))
        for i, curve in enumerate(curves):
            color, dash = line_style(i)
            loss = result.data["mean"][curve["members"], :, curve["head"]].mean(0)
            axis.plot(result.data["timesteps"], loss, color=color, linestyle=dash, label=curve["name"])
            inner = np.array(curve["edges"][1:-1], dtype=int)
            axis.plot(inner, loss[inner], color=color, linestyle="", marker="|", markersize=14)
        timestep_axis(axis, 0, len(result.data["timesteps"]))
        log_axis(axis)
        axis.set_title(f"native loss over {result.facts['images']} test images; bars: edges of the slots")
        if len(curves) > 1:
            axis.legend()
        _table(table, curves[:MOST_COLUMNS])
        return figure

    def sentence(self, result: Result) -> str:
        said = []
        for curve in result.facts["curves"]:
            size, share = np.diff(curve["edges"]), [100 * value for value in curve["share"]]
            of = f" of {curve['name']}" if curve["name"] else ""
            said.append(
                f"the slots of equal loss{of} have the edges {curve['edges']}: the first has {size[0]} of the "
                f"{curve['edges'][-1]} timesteps, the last {size[-1]}, and each {min(share):.3g} to {max(share):.3g} % "
                f"of the loss{_over_seeds(curve)}"
            )
        return f"{capitalised(joined(said))}."


def _over_seeds(curve: dict[str, Any]) -> str:
    """How far the edges of single seeds lie apart; nothing for one seed."""
    if len(curve["members"]) == 1:
        return ""
    (first, end), (start, last) = curve["over_seeds"]["first_end"], curve["over_seeds"]["last_start"]
    return (
        f" (of {len(curve['members'])} seeds alone the first slot ends before t = {first} to {end}, and the last "
        f"begins at {start} to {last})"
    )


def _table(axis: Axes, curves: Sequence[dict[str, Any]]) -> None:
    """A row for each slot, 1 the least noisy; first and last timestep, and with one curve also size and share."""
    rows = [[str(k + 1)] for k in range(len(curves[0]["share"]))]
    head = ["slot"]
    for curve in curves:
        head.append("\n".join(wrap(curve["name"], 40 // len(curves))) or "timesteps")
        for row, start, end in zip(rows, curve["edges"], curve["edges"][1:], strict=False):
            row.append(f"{start} to {end - 1}" if end - start > 1 else str(start))
    if len(curves) == 1:
        head += ["count", "share of loss"]
        for row, size, share in zip(rows, np.diff(curves[0]["edges"]), curves[0]["share"], strict=True):
            row += [str(size), f"{100 * share:.2f} %"]
    from matplotlib.transforms import Bbox

    axis.axis("off")
    table = axis.table(cellText=rows, colLabels=head, loc="center", cellLoc="center", bbox=Bbox.unit())
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    for (row, _), cell in table.get_celld().items():
        cell.set_edgecolor("#E6E6E6")
        if row == 0:
            cell.set_height(cell.get_height() * (1 + 0.6 * max(text.count("\n") for text in head)))
            cell.set_text_props(weight="bold", size=9 if len(curves) == 1 else 7.5)
