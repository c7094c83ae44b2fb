"""`diffusion-lab sample run=DIR seeds=0-63`: images of a trained model."""

from __future__ import annotations

import re
from pathlib import Path

from omegaconf import DictConfig

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.evaluate import pick_device, pick_solver


def run(cfg: DictConfig) -> None:
    """Write one PNG per sample, `000000.png` for id 0, and `grid.png`; sample i depends on (seed, i) alone."""
    from diffusion_lab.cli.load import load_run
    from diffusion_lab.metrics import class_labels, generate, save_grid

    if cfg.run is None:
        raise ConfigError("run=null must be a run folder, e.g. run=runs/digits-uniform-s0-1a2b3c4d; see runs/")
    ids = parse_ids(str(cfg.seeds))
    trained = load_run(cfg.run, cfg.checkpoint, str(cfg.weights))
    solver = pick_solver(cfg, trained)
    device = pick_device(cfg.device)
    images = generate(
        trained.denoiser.to(device),
        solver,
        ids,
        cfg.seed,
        trained.data.shape,
        cfg.batch_size,
        device,
        progress=True,
        cond=class_labels(trained.data.num_classes, ids),
        to_pixels=trained.data.source.to_pixels,
    )
    folder = Path(cfg.outdir or Path(cfg.run) / "generated" / f"step-{trained.step:08d}")
    for number, image in zip(ids, images, strict=True):
        save_grid(image[None], folder / f"{number:06d}.png", columns=1, scale=1, gap=0)
    save_grid(images, folder / "grid.png")
    print(f"{len(images)} images and grid.png in {folder}")


def parse_ids(text: str) -> list[int]:
    """ "0-3,10" -> [0, 1, 2, 3, 10]

    Raises:
        ConfigError: anything else.
    """
    ids: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", word)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ConfigError(f"seeds={text} must be numbers and ranges such as 0-63 or 0,5,7; the id of each sample")
        ids += range(int(match[1]), int(match[2] or match[1]) + 1)
    return ids
