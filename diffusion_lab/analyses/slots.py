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

from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.per_timestep import PerTimestep, curve_names
from diffusion_lab.arguments import check_integer
from diffusion_lab.plotting import line_style, log_axis, panels
from diffusion_lab.timesteps import equal_sum_slots
from diffusion_lab.training import Trained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diffusion_lab.analyses.work import Work

MOST_COLUMNS = 5  # tables beside one another
HEIGHT = 0.3  # inches of a row


class Slots(Analysis):
    """Edges of the slots of each model and head, and what each slot holds.

    `data.npz` has edges (M,heads,K+1), where slot k is {e_k .. e_{k+1} - 1}, and share (M,heads,K), its part of the
    loss; and timesteps (T,), mean and standard_error (M,T,heads) of the losses, which `sampler.loss_curve` can read.
    `facts.json` has the same edges and shares by curve.

    Args:
        num_slots: K.
        images: test images, at least 2.
        batch_size: rows of one network call.

    Raises:
        ValueError: a number out of range; from `check`, models whose losses cannot share an axis, or with fewer
            timesteps than slots.
    """

    def __init__(self, num_slots: int = 10, images: int = 64, batch_size: int = 256) -> None:
        self.num_slots = check_integer("num_slots", num_slots, 1, "use 10")
        self.losses = PerTimestep(images, 1, batch_size)

    def check(self, trained: Sequence[Trained]) -> None:
        self.losses.check(trained)
        steps = trained[0].denoiser.num_timesteps
        if self.num_slots > steps:
            raise ValueError(f"analysis.num_slots={self.num_slots} must be at most the {steps} timesteps; use 10")

    def run(self, trained: Sequence[Trained], work: Work) -> Result:
        found = self.losses.measure(trained, work)
        loss = found["mean"].transpose(0, 2, 1)  # (M,heads,T)
        edges = np.stack([[equal_sum_slots(torch.from_numpy(one), self.num_slots).numpy() for one in m] for m in loss])
        before = np.concatenate([np.zeros_like(loss[..., :1]), loss.cumsum(2)], axis=2)
        share = np.diff(np.take_along_axis(before, edges, 2)) / before[..., -1:]
        names = curve_names(trained)
        rows = zip(names, edges.reshape(len(names), -1), share.reshape(len(names), -1), strict=True)
        curves = [{"name": name, "edges": e.tolist(), "share": s.tolist()} for name, e, s in rows]
        data = {key: found[key] for key in ("timesteps", "mean", "standard_error")} | {"edges": edges, "share": share}
        return Result(data, {"images": len(found["image"]), "num_slots": self.num_slots, "curves": curves})

    def figure(self, result: Result) -> Figure:
        curves, heads = result.facts["curves"], result.data["mean"].shape[2]
        figure, (axis, table) = panels(2, height=max(3.6, HEIGHT * (self.num_slots + 4)))
        for i, curve in enumerate(curves):
            color, dash = line_style(i)
            loss = result.data["mean"][i // heads, :, i % heads]
            axis.plot(result.data["timesteps"], loss, color=color, linestyle=dash, label=curve["name"])
            inner = np.array(curve["edges"][1:-1], dtype=int)
            axis.plot(inner, loss[inner], color=color, linestyle="", marker="|", markersize=14)
        axis.set_xscale("symlog", linthresh=10)
        axis.set_xlim(0, len(result.data["timesteps"]))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        log_axis(axis)
        axis.set_xlabel("timestep t")
        axis.set_title(f"native loss over {result.facts['images']} test images; bars: edges of the slots")
        if len(curves) > 1:
            axis.legend()
        _table(table, curves[:MOST_COLUMNS])
        return figure

    def sentence(self, result: Result) -> str:
        said = []
        for curve in result.facts["curves"][:6]:
            size, share = np.diff(curve["edges"]), [100 * value for value in curve["share"]]
            of = f" of {curve['name']}" if curve["name"] else ""
            said.append(
                f"the slots of equal loss{of} have the edges {curve['edges']}: the first has {size[0]} of the "
                f"{curve['edges'][-1]} timesteps, the last {size[-1]}, and each {min(share):.3g} to {max(share):.3g} % "
                "of the loss"
            )
        text = "; ".join(said) + ("; and so on" if len(result.facts["curves"]) > 6 else "")
        return f"{text[0].upper()}{text[1:]}."


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
