"""Encodes images into a folder of latents, in order and in bounded memory; it can continue after an interruption.

    z = mean + std eps,   eps ~ N(0, I) keyed by (seed, split, row)          posterior="sample"
    z = mean                                                                 posterior="mean"

LDM, DiT (Peebles & Xie 2023) and U-ViT (Bao et al. 2023) train on draws from the posterior, so "sample" is the default.

Differs from LDM and DiT, which encode and draw again at every step, and from U-ViT, which stores mean and std and draws
at every step: here a latent is drawn once, because then a training image is a function of its number, the array has
half the size, and the std of these autoencoders is small compared with that of the latents.

Unfinished arrays are called `<split>.npy.partial`, and encoding.json records the progress; the header is written last.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from diffusion_lab import __version__
from diffusion_lab.arguments import check_choice, check_flag, check_integer
from diffusion_lab.data.latent.autoencoder import Autoencoder
from diffusion_lab.data.latent.stored import FORMAT, HEADER, PROGRESS, SPLITS, Header, moments, read_header, sha256
from diffusion_lab.data.loading import as_it_is
from diffusion_lab.data.pixels import to_float
from diffusion_lab.data.source import ImageSet, ImageSource
from diffusion_lab.files import write_json
from diffusion_lab.progress import progress
from diffusion_lab.streams import Streams
from diffusion_lab.versions import versions

SAVED_EVERY = 20.0  # seconds between two writes of the progress
MARGIN = 50_000_000  # bytes that must stay free
LIBRARIES = ("torch", "numpy", "diffusers", "safetensors")


class Encoding:
    """Writes the latents of an image source into a folder.

    Args:
        source: images in [-1, 1] with the autoencoder's number of channels.
        autoencoder: the autoencoder.
        folder: output folder; made if missing.
        flips: also encode every training image mirrored left to right.
        posterior: "sample" or "mean".
        seed: seed of the draws.
        num_workers: processes that read images.

    Raises:
        ValueError: an argument outside its range; images that this autoencoder cannot encode; a full disk; a folder
            with latents of another encoding; latents that float16 cannot represent.
        FileNotFoundError: the images or the autoencoder are missing.
    """

    def __init__(
        self,
        source: ImageSource,
        autoencoder: Autoencoder,
        folder: str | Path,
        flips: bool = False,
        posterior: str = "sample",
        seed: int = 0,
        num_workers: int = 0,
    ) -> None:
        check_flag("flips", flips, "use true for images without a side")
        check_choice("posterior", posterior, ("sample", "mean"), "papers train on samples")
        check_integer("num_workers", num_workers, 0, "use 0 for images in memory")
        self.source, self.autoencoder, self.folder = source, autoencoder, Path(folder).expanduser()
        self.flips, self.posterior, self.num_workers = flips, posterior, num_workers
        self.streams = Streams(seed)

    def run(self, device: torch.device | str = "cpu") -> Header:
        """Encode what is missing. A finished folder is left unchanged."""
        self.check()
        request = self.request
        if (self.folder / HEADER).exists():
            return self._finished(request)
        done = self._progress(request)
        self._check_disk()
        self.source.check_values(SPLITS)
        for split in SPLITS:
            self._encode(split, done, torch.device(device))
        header = self._seal(request)
        (self.folder / PROGRESS).unlink()
        return header

    @functools.cached_property
    def request(self) -> dict[str, Any]:
        """Everything on which the latents depend, as entries of the header."""
        source = self.source
        splits = {name: {"images": len(images), "fingerprint": images.fingerprint()} for name, images in self._sets()}
        images = {"channels": source.channels, "image_size": source.image_size, "num_classes": source.num_classes}
        images["classes"] = None if source.class_names is None else list(source.class_names)
        return {
            "autoencoder": self.autoencoder.identity() | {"place": self.autoencoder.place},
            "images": {"name": source.name} | images | splits,
            "posterior": self.posterior,
            "seed": self.streams.seed,
            "flips": self.flips,
        }

    def check(self) -> None:
        """Raise ValueError if this autoencoder cannot encode these images."""
        source, model = self.source, self.autoencoder
        if source.value_range is None:
            raise ValueError(f"source={source.name} must give images in [-1, 1]; choose a data set of images")
        if source.channels != model.image_channels:
            raise ValueError(
                f"source.channels={source.channels} must be the autoencoder's {model.image_channels}; "
                "choose images of that many"
            )
        if source.image_size % model.factor:
            lower = source.image_size // model.factor * model.factor
            raise ValueError(
                f"source.image_size={source.image_size} must be a multiple of {model.factor}, by which the autoencoder "
                f"shrinks; use {lower or model.factor}"
            )

    def _sets(self) -> list[tuple[str, ImageSet]]:
        return [("train", self.source.train()), ("test", self.source.test())]

    def _copies(self, split: str) -> int:
        return 2 if self.flips and split == "train" else 1

    def _shape(self, split: str) -> tuple[int, int, int, int]:
        side = self.source.image_size // self.autoencoder.factor
        return len(dict(self._sets())[split]) * self._copies(split), self.autoencoder.channels, side, side

    def _finished(self, request: dict[str, Any]) -> Header:
        header = read_header(self.folder)
        wanted, actual = _plain(request), _plain({key: getattr(header, key) for key in request})
        different = [key for key in wanted if wanted[key] != actual[key]]
        if different:
            raise ValueError(
                f"outdir={self.folder} must be a new folder, or hold latents of the same request, and its "
                f"{' and '.join(different)} differ; give another folder, or remove that one"
            )
        return header

    def _progress(self, request: dict[str, Any]) -> dict[str, int]:
        """Number of rows of each split on the disk, from an interrupted encoding of the same request."""
        path = self.folder / PROGRESS
        if not path.exists():
            return dict.fromkeys(SPLITS, 0)
        content = json.loads(path.read_text(encoding="utf-8"))
        if _plain(content["request"]) != _plain(request):
            raise ValueError(
                f"outdir={self.folder} must be a new folder, and holds an unfinished encoding of something else; give "
                "another folder, or remove that one"
            )
        return content["done"]

    def _check_disk(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        there = sum(path.stat().st_blocks * 512 for path in self.folder.glob("*.npy*"))
        need = sum(2 * int(np.prod(self._shape(split))) for split in SPLITS) - there + MARGIN
        free = shutil.disk_usage(self.folder).free
        if free < need:
            raise ValueError(
                f"outdir={self.folder} must have {need / 1e9:.2f} GB free, and has {free / 1e9:.2f} GB; give a folder "
                "on another disk"
            )

    def _encode(self, split: str, done: dict[str, int], device: torch.device) -> None:
        """Encode the rows of a split from done[split] on."""
        images, (rows, *shape) = dict(self._sets())[split], self._shape(split)
        array = self._partial(split, (rows, *shape), done)
        size = self.autoencoder.batch_size
        batches: list[Any] = [range(row, min(row + size, rows)) for row in range(done[split], rows, size)]
        loader = DataLoader(_Rows(images), batch_sampler=batches, num_workers=self.num_workers, collate_fn=as_it_is)
        saved = time.monotonic()
        with progress(f"encode {split}", rows, "images", done[split]) as task:
            for number, (ids, batch) in enumerate(zip(batches, loader, strict=True), start=1):
                array[ids.start : ids.stop] = self._latents(batch.to(device), ids, split, len(images))
                task.advance(len(ids))
                if number == len(batches) or time.monotonic() - saved >= SAVED_EVERY:
                    array.flush()
                    done[split] = ids.stop
                    write_json(self.folder / PROGRESS, {"request": self.request, "done": done})
                    saved = time.monotonic()

    def _partial(self, split: str, shape: tuple[int, ...], done: dict[str, int]) -> np.memmap:
        """The array to write to; done[split] becomes 0 if a new one is made."""
        path, final = (_regular(self.folder / f"{split}.npy{end}") for end in (".partial", ""))
        if final.exists() and not path.exists():  # interrupted between the move and the header
            os.replace(final, path)
        if done[split] and path.exists():
            return np.lib.format.open_memmap(path, "r+")
        done[split] = 0
        return np.lib.format.open_memmap(path, "w+", np.dtype(np.float16), shape)

    def _latents(self, images: Tensor, ids: range, split: str, count: int) -> np.ndarray:
        """Rows `ids` of a split of `count` images: (n,c,h,w) float16."""
        x = to_float(images)
        mirrored = (torch.tensor(ids, device=x.device) >= count)[:, None, None, None]
        mean, std = self.autoencoder.encode(torch.where(mirrored, x.flip(-1), x) if bool(mirrored.any()) else x)
        if self.posterior == "sample" and bool((std > 0).any()):
            stream = ("encode", SPLITS.index(split))
            eps = torch.stack([self.streams.normal(tuple(mean.shape[1:]), *stream, row) for row in ids])
            mean = mean + std * eps.to(mean.device)
        stored = mean.to("cpu", torch.float16)
        bad = (~torch.isfinite(stored).flatten(1).all(1)).nonzero().flatten()
        if len(bad):
            raise ValueError(
                f"autoencoder={self.autoencoder.weights} must give finite latents below 65504, which float16 can hold, "
                f"and does not for {split} image {ids[int(bad[0])] % count}; check that image, or use another one"
            )
        return stored.numpy()

    def _seal(self, request: dict[str, Any]) -> Header:
        """Rename the arrays, and write labels, statistics and hashes; the header is written last."""
        splits = {}
        for split, images in self._sets():
            path = self.folder / f"{split}.npy"
            os.replace(path.with_suffix(".npy.partial"), path)
            labels = None
            if images.labels is not None:
                labels = _regular(self.folder / f"{split}_labels.npy")
                np.save(labels, np.tile(images.labels.numpy(), self._copies(split)))
            splits[split] = {
                "shape": list(self._shape(split)),
                "sha256": sha256(path, f"hash {path.name}"),
                "labels_sha256": None if labels is None else sha256(labels),
            }
        mean, std = moments(np.load(self.folder / "train.npy", mmap_mode="r"))
        if min(std) == 0:
            raise ValueError(
                f"autoencoder={self.autoencoder.weights} must give latents that vary, and channel {std.index(0)} is "
                "constant; use a trained autoencoder, and images that are not all equal"
            )
        used = {"diffusion-lab": __version__} | versions(*LIBRARIES)  # an own autoencoder may need no diffusers
        header = Header(FORMAT, **request, mean=mean, std=std, splits=splits, versions=used)
        header.write(self.folder)
        return header


class _Rows(Dataset[Tensor]):
    """Loads whole batches of images; rows beyond the last image are the images to be mirrored."""

    def __init__(self, images: ImageSet) -> None:
        self.images = images

    def __getitems__(self, rows: range) -> Tensor:
        return self.images.take([row % len(self.images) for row in rows])


def _regular(path: Path) -> Path:
    """The path, where a link, FIFO or device that was put there is removed instead of written through."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
    return path


def _plain(request: dict[str, Any]) -> dict[str, Any]:
    """The request as read back from JSON, without the location of the autoencoder."""
    plain = json.loads(json.dumps(request))
    del plain["autoencoder"]["place"]
    return plain
