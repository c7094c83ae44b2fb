"""`diffusion-lab sample run=DIR seeds=0-63`: images of a trained model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from diffusion_lab.cli.checks.setting import LARGEST, faults_of
from diffusion_lab.cli.errors import ConfigError, InvalidConfig, config_errors
from diffusion_lab.cli.evaluate import pick_solver
from diffusion_lab.cli.folders import writable
from diffusion_lab.data.recorded import numbered as numbered_classes
from diffusion_lab.runs.names import GENERATED, IMAGES, numbered

MOST = 1_000_000  # samples of one command: all of them are in memory before the first is written


def run(cfg: DictConfig) -> None:
    """Write one PNG per sample, `images/000000.png` for id 0, and `grid.png`; sample i depends on (seed, i) and its
    label. `images` holds nothing else, so that programs which measure a folder can be given it.

    A conditional model's samples are also written to one grid per class, `class-3.png`. For a super-resolution model,
    `grid.png` has the given image, the sample and the true image, from the test set, side by side.
    """
    from diffusion_lab.cli.inference import LATENTS, load_trained, ready
    from diffusion_lab.metrics import generate, save_grid

    if faults := faults_of(cfg, LATENTS):
        raise InvalidConfig(faults)
    ids = parse_ids(str(cfg.seeds))
    trained = load_trained(cfg, reads_data=False)
    with config_errors("dataset.source"):
        trained.data.source.check_pixels()
    conditions = trained.data.conditions
    labels = parse_labels(cfg.labels, conditions.num_classes, conditions.class_names or ())
    solver = pick_solver(cfg, trained)
    asked = conditions.of_samples(ids)
    if labels:
        asked["label"] = torch.tensor(labels)[torch.arange(len(ids)) % len(labels)]
    folder = Path(cfg.outdir or Path(cfg.run) / GENERATED / numbered(trained.step))
    top, key = (None, "outdir") if cfg.outdir else (Path(cfg.run), "run")
    grids = ["grid.png", *(f"class-{label}.png" for label in range(conditions.num_classes or 0))]
    writable(key, folder, top, grids)
    writable(key, folder / IMAGES, top, {f"{number:06d}.png" for number in ids})
    strangers = unasked(folder / IMAGES, ids)
    row = {number: k for k, number in enumerate(ids)}
    with ready(trained.module, cfg.device, cfg.precision) as device:
        images = generate(
            trained.module,
            solver,
            ids,
            cfg.seed,
            trained.data.shape,
            cfg.batch_size,
            device,
            progress=True,
            conditions=lambda some: {key: value[[row[i] for i in some]] for key, value in asked.items()},
            to_pixels=trained.data.source.to_pixels,
        )
    for number, image in zip(ids, images, strict=True):
        save_grid(image[None], folder / IMAGES / f"{number:06d}.png", columns=1, scale=1, gap=0)
    if conditions.task.paired:
        given, truth = conditions.given_and_truth(ids)
        save_grid(torch.stack([given, images, truth], dim=1).flatten(0, 1), folder / "grid.png", columns=9)
    else:
        save_grid(images, folder / "grid.png")
    shown = sorted(set(asked.get("label", torch.empty(0)).tolist()))
    for label in shown:
        save_grid(images[asked["label"] == label], folder / f"class-{label}.png")
    print(f"{len(images)} images in {folder / IMAGES}, grid.png in {folder}")
    if shown and (named := numbered_classes(conditions.class_names or (), shown)):
        print(f"classes: {named}")
    if strangers:
        print(f"{strangers} other files were there before; a program that measures the folder reads them too")
    print(f"next: {shlex.join(['fidelity', '--fid', '--input1', str(folder / IMAGES), '--input2', 'REAL_IMAGES'])}")


def unasked(folder: Path, ids: Sequence[int]) -> int:
    """Number of files in the folder that samples of these ids do not replace."""
    names = {f"{number:06d}.png" for number in ids}
    return sum(path.name not in names for path in folder.iterdir())


def parse_labels(labels: Any, num_classes: int | None, names: Sequence[str] = ()) -> list[int]:
    """3 or [3, 5] -> the list of them; [cat, dog] -> their numbers; [] for None.

    Args:
        labels: numbers of classes, or names as text, with capitals or not.
        num_classes: K; None for an unconditional model.
        names: of the classes, in the order of their numbers.

    Raises:
        ConfigError: the model is unconditional, or a number or name is not a class.
    """
    if labels is None:
        return []
    given: list[Any] = list(labels) if isinstance(labels, Sequence) and not isinstance(labels, str) else [labels]
    if num_classes is None:
        raise ConfigError(f"labels={labels} must be null for this run, which was trained without labels")
    of = {name.casefold(): label for label, name in enumerate(names)} | {name: k for k, name in enumerate(names)}
    given = [of.get(label, of.get(label.casefold(), label)) if isinstance(label, str) else label for label in given]
    wrong = [label for label in given if type(label) is not int or not 0 <= label < num_classes]
    if wrong or not given:
        known = numbered_classes(names)
        raise ConfigError(
            f"labels={labels} must be classes in 0..{num_classes - 1}{f' ({known})' if known else ''}; use "
            f"labels=[{f'{names[0]},{names[-1]}' if known else '0,1'}]"
        )
    return given


def parse_ids(text: str) -> list[int]:
    """ "0-3,10" -> [0, 1, 2, 3, 10]

    Raises:
        ConfigError: the text has another form, a number exceeds 64 bits, or there are more than `MOST` samples.
    """
    ids: list[int] = []
    cure = "numbers and ranges such as 0-63 or [0,5,7]; the id of each sample"
    for word in text.strip("[]").split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", word)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ConfigError(f"seeds={text} must be {cure}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last > LARGEST:
            raise ConfigError(f"seeds={text} must be numbers up to {LARGEST}; use {cure}")
        if len(ids) + last - first >= MOST:
            raise ConfigError(
                f"seeds={text} must be at most {MOST:,} samples, which lie in memory; use several commands"
            )
        ids += range(first, last + 1)
    if len(set(ids)) < len(ids):
        raise ConfigError(f"seeds={text} must name each sample once; a sample is a function of its number")
    return ids
