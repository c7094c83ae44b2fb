"""`diffusion-lab sample run=DIR seeds=0-63`: images of a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from omegaconf import DictConfig

from diffusion_lab.cli.checks.run_arguments import parse_ids
from diffusion_lab.cli.commands.evaluate import pick_solver
from diffusion_lab.cli.errors import config_errors
from diffusion_lab.cli.output_folders import writable
from diffusion_lab.runs.data_record import numbered as numbered_classes
from diffusion_lab.runs.names import GENERATED, IMAGES, numbered
from diffusion_lab.runs.shell_commands import command, setting

if TYPE_CHECKING:
    from diffusion_lab.training import TrainedModel


def run(cfg: DictConfig) -> None:
    """Write one PNG per sample, `images/000000.png` for id 0, and `grid.png`; sample i depends on (seed, i) and its
    label. `images` holds nothing else, so that programs which measure a folder can be given it.

    A conditional model's samples are also written to one grid per class, `class-3.png`. For a super-resolution model,
    `grid.png` has the given image, the sample and the true image, from the test set, side by side.
    """
    from diffusion_lab.cli.inference import load_trained, ready, threads_of
    from diffusion_lab.metrics import generate, save_grid

    ids = parse_ids(str(cfg.seeds))
    trained = load_trained(cfg, reads_data=False)
    with config_errors("dataset.source"):
        trained.data.source.check_pixels()
    conditions = trained.data.conditions
    with config_errors(""):
        conditions_of = conditions.of_samples_with(ids, cfg.labels)
    solver = pick_solver(cfg, trained)
    asked = conditions_of(ids)
    folder = Path(cfg.outdir or Path(cfg.run) / GENERATED / numbered(trained.step))
    top, key = (None, "outdir") if cfg.outdir else (Path(cfg.run), "run")
    grids = ["grid.png", *(f"class-{label}.png" for label in range(conditions.num_classes or 0))]
    writable(key, folder, top, grids)
    files = [f"{number:06d}.png" for number in ids]
    writable(key, folder / IMAGES, top, files)
    strangers = len({path.name for path in (folder / IMAGES).iterdir()}.difference(files))
    with ready(trained.module, cfg.device, cfg.precision, threads_of(cfg, trained)) as device:
        images = generate(
            trained.module,
            solver,
            ids,
            cfg.seed,
            trained.data.shape,
            cfg.batch_size,
            device,
            progress=True,
            conditions=conditions_of,
            to_pixels=trained.data.source.to_pixels,
        )
    for name, image in zip(files, images, strict=True):
        save_grid(image[None], folder / IMAGES / name, columns=1, scale=1, gap=0)
    if conditions.task.paired:
        given, truth = conditions.given_and_truth(ids)
        save_grid(torch.stack([given, images, truth], dim=1).flatten(0, 1), folder / "grid.png", columns=9)
    else:
        save_grid(images, folder / "grid.png")
    shown = sorted(set(asked.get("label", torch.empty(0)).tolist()))
    for label in range(conditions.num_classes or 0):
        (folder / f"class-{label}.png").unlink(missing_ok=True)  # of an earlier command
    for label in shown:
        save_grid(images[asked["label"] == label], folder / f"class-{label}.png")
    print(f"{len(images)} images in {folder / IMAGES}, grid.png in {folder}")
    if shown and (named := numbered_classes(conditions.class_names or (), shown)):
        print(f"classes: {named}")
    if strangers:
        print(f"{strangers} other files were there before; a program that measures the folder reads them too")
    print(f"next: {command('evaluate', setting('run', cfg.run), *_measurable(trained))}")


def _measurable(trained: TrainedModel) -> list[str]:
    """The words that `evaluate` needs to measure something where the weights of the run's features are not there."""
    try:
        if trained.data.features is not None:
            trained.data.features.check()
            return []
    except (FileNotFoundError, ValueError):  # no weights, or too few images to train them
        pass
    return ["metrics.names=[sample_variance]"]
