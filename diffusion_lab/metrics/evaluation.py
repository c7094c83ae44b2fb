"""The evaluation of a model: samples once, features once, every metric from them, each with its protocol."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from diffusion_lab.data import ImageDataModule
from diffusion_lab.diffusion import Denoiser
from diffusion_lab.distributed import gather_rows, rank, world_size
from diffusion_lab.metrics.features import FeatureExtractor, Features, extract_batches
from diffusion_lab.metrics.generation import class_labels, generate_batches
from diffusion_lab.metrics.measures import METRICS, NEIGHBOURS, SPLITS, Names, check_same_shape, measure
from diffusion_lab.metrics.reference import Reference, reference_statistics
from diffusion_lab.solvers import Solver


class Result(NamedTuple):
    """One number with all that it depends on: extractor, samples, solver, EMA decay, reference and seed."""

    name: str
    value: float
    protocol: dict[str, Any]


class Evaluated(NamedTuple):
    """The first samples of this rank (n,C,H,W) uint8, and one result per metric, equal on all ranks."""

    images: Tensor
    results: list[Result]


class Evaluation:
    """Metrics of a model against its data set.

    The Fréchet distance uses all images of the reference split, as is the custom; the kernel distance, precision and
    recall use as many of them as there are samples, evenly spread, because they compare sets of equal size.

    Args:
        num_samples: N generated images, at least twice the extractor's dimensions (4096 for Inception).
        batch_size: samples at a time, on each process; changes no latent.
        names: which of fid, kid, is, precision, recall; an empty list evaluates nothing.
        seed: of the latents, >= 0. It is not the run's: all methods and seeds are compared on the same latents.
        split: reference images, "train" (the custom) or "test".

    Raises:
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        num_samples: int = 1000,
        batch_size: int = 250,
        names: Names = METRICS,
        seed: int = 0,
        split: str = "train",
    ) -> None:
        for name, value, lowest in (("num_samples", num_samples, 0), ("batch_size", batch_size, 1), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise ValueError(f"{name}={value!r} must be an integer >= {lowest}; leave it out for the default")
        unknown = [name for name in names if name not in METRICS]
        if unknown or len(set(names)) < len(names):
            raise ValueError(f"names={list(names)} must be different ones of {list(METRICS)}; use [fid]")
        if split not in ("train", "test"):
            raise ValueError(f"split={split!r} must be 'train' or 'test'; use 'train', as published FIDs do")
        if names and num_samples <= NEIGHBOURS + SPLITS:
            raise ValueError(f"num_samples={num_samples} is too few for any metric; use 1000, or names=[] for none")
        self.num_samples, self.batch_size, self.names = num_samples, batch_size, tuple(names)
        self.seed, self.split = seed, split

    def check(self, extractor: FeatureExtractor | None) -> None:
        """Raise the teaching error, before training, if these metrics cannot be computed with this extractor."""
        if not self.names or extractor is None:
            return
        least = 2 * extractor.feature_dim
        if "fid" in self.names and self.num_samples < least:
            raise ValueError(
                f"num_samples={self.num_samples} must be at least {least}, twice the {extractor.feature_dim} "
                f"dimensions of {extractor.name}'s features; raise it, or take fid out of names"
            )
        extractor.check()

    def __call__(
        self,
        denoiser: Denoiser,
        solver: Solver,
        data_module: ImageDataModule,
        device: torch.device | str = "cpu",
        progress: bool = False,
        ema_decay: float | None = None,
        keep: int = 64,
    ) -> Evaluated:
        """Sample, extract, measure. Every rank must call; each makes its share of the samples.

        Args:
            denoiser: the model, on `device`, with the weights that are to be judged.
            solver: how to sample.
            data_module: gives the shape, the reference images and the extractor (none: no metrics).
            device: where to sample and extract.
            progress: whether to show bars.
            ema_decay: of the denoiser's weights, None for the raw ones; only recorded.
            keep: how many of the first samples to return, for a picture.

        Raises:
            ValueError: samples that are not finite, too few samples or reference images, or a cache of something else.
        """
        extractor, shape = data_module.features, data_module.shape
        names = self.names if extractor is not None else ()
        self.check(extractor)
        share = math.ceil(self.num_samples / world_size())
        ids = range(rank() * share, (rank() + 1) * share) if names else range(0 if rank() else keep)
        cond = class_labels(data_module.num_classes, ids)
        to_pixels = data_module.source.to_pixels
        kept: list[Tensor] = []

        def batches() -> Iterator[Tensor]:
            for batch in generate_batches(
                denoiser, solver, ids, self.seed, shape, self.batch_size, device, progress, cond, to_pixels
            ):
                kept.append(batch[: keep - sum(map(len, kept))])
                yield batch

        if extractor is None or not names:
            deque(batches(), maxlen=0)
            return Evaluated(torch.cat(kept) if kept else torch.empty(0, *shape, dtype=torch.uint8), [])
        local = extract_batches(extractor, batches(), len(ids), device)
        real = self._reference(data_module, device, progress)
        check_same_shape(tuple(kept[0].shape[1:]), tuple(real.metadata["shape"]))
        values = measure(self._gathered(local, device), real.statistics, real.features, names)
        results = [
            Result(extractor.metric_name(name, self.num_samples), value, self._protocol(name, solver, real, ema_decay))
            for name, value in values.items()
        ]
        return Evaluated(torch.cat(kept), results)

    def _gathered(self, local: Features, device: torch.device | str) -> Features:
        """All ranks' rows in order of id; the last rank made a few samples too many if the share is not whole."""
        # On the device: NCCL cannot gather CPU tensors.
        return Features(*(gather_rows(part.to(device)).cpu()[: self.num_samples] for part in local))

    def _reference(self, data_module: ImageDataModule, device: torch.device | str, progress: bool) -> Reference:
        source = data_module.source.pixels()
        images = source.train() if self.split == "train" else source.test()
        points = self.num_samples if set(self.names) & {"kid", "precision", "recall"} else 0
        return reference_statistics(
            images,
            data_module.features,
            source.name,
            self.split,
            points,
            device=device,
            progress=progress,
        )

    def _protocol(self, name: str, solver: Solver, real: Reference, ema_decay: float | None) -> dict[str, Any]:
        record = real.metadata
        settings = {
            "kid": {"kernel": "(x.y/D+1)^3", "subset_size": min(1000, self.num_samples, len(real.features))},
            "is": {"splits": SPLITS},
            "precision": {"neighbours": NEIGHBOURS},
            "recall": {"neighbours": NEIGHBOURS},
        }
        compared = {"fid": record["images"], "is": 0}.get(name, record["subset"])
        return {
            "extractor": {"name": record["extractor"], "weights_sha256": record["weights_sha256"]},
            "samples": self.num_samples,
            "solver": solver.describe(),
            "ema_decay": ema_decay,
            "reference": {key: record[key] for key in ("dataset", "split", "fingerprint", "shape")} | {"n": compared},
            "seed": self.seed,
            **settings.get(name, {}),
        }
