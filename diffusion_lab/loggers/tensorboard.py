"""TensorBoard event files in the run folder. Needs the package tensorboard, which is imported when a run starts."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.utilities import rank_zero_only

from diffusion_lab.arguments import WrittenPath
from diffusion_lab.loggers.base import RunLogger


class TensorBoardLogger(RunLogger):
    """Writes scalars, pictures and curves to `<directory>/tensorboard`; view them with
    `tensorboard --logdir <folder of runs>`.

    Args:
        directory: the run folder.

    Raises:
        ValueError: the package tensorboard is not installed.
    """

    def __init__(self, directory: WrittenPath) -> None:
        super().__init__(directory)
        if find_spec("tensorboard") is None:
            raise ValueError(
                "the TensorBoard logger needs the package tensorboard, which is not installed; "
                "pip install 'diffusion-lab[tensorboard]', or use logger=default"
            )
        self._writer: Any = None
        self._purge_step: int | None = None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        """torch's SummaryWriter; opens an event file at the first use."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self.directory / "tensorboard"), purge_step=self._purge_step)
        return self._writer

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        for key, value in metrics.items():
            self.experiment.add_scalar(key, float(value), step)

    @rank_zero_only
    def log_picture(self, key: str, path: Path, step: int) -> None:
        import numpy as np
        from PIL import Image

        with Image.open(path) as image:
            self.experiment.add_image(key, np.asarray(image.convert("RGB")), step, dataformats="HWC")

    @rank_zero_only
    def log_curve(self, key: str, x: Sequence[float], lines: Mapping[str, Sequence[float]], step: int) -> None:
        self.experiment.add_image(key, draw_lines(key, x, lines), step, dataformats="HWC")

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        params = vars(params) if isinstance(params, Namespace) else params
        # TensorBoard renders text as Markdown: four spaces start a block of code.
        text = "".join(f"    {line}\n" for line in json.dumps(params, indent=2, default=str).splitlines())
        self.experiment.add_text("config", text)

    @rank_zero_only
    def cut(self, step: int) -> None:
        """Hide the events after `step` of earlier event files; must be called before anything is logged."""
        self._purge_step = step + 1

    @rank_zero_only
    def save(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Close the event file; later values would open another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def draw_lines(title: str, x: Sequence[float], lines: Mapping[str, Sequence[float]]) -> Any:
    """(H,W,3) uint8: a diagram of lines over x with their labels."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)  # not pyplot, which keeps figures and a display in global state
    axes = figure.add_subplot(title=title)
    for label, y in lines.items():
        axes.plot(x, y, label=label)
    if lines:
        axes.legend()
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
