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
from diffusion_lab.metrics.bound import BITS_PER_DIM, mean_bits_per_dim
from diffusion_lab.metrics.features import FeatureExtractor, features_of, thousands
from diffusion_lab.metrics.generation import generate_batches
from diffusion_lab.metrics.measures import (
    AGREEMENT,
    COMPARE_POINTS,
    METRICS,
    NEIGHBOURS,
    SPLITS,
    Names,
    Summary,
    check_same_shape,
    measure,
)
from diffusion_lab.metrics.paired import PAIRED
from diffusion_lab.metrics.reference import Reference, reference_statistics
from diffusion_lab.metrics.watched import Watched
from diffusion_lab.solvers import Solver


class Result(NamedTuple):
    """One number with all that it depends on: extractor, samples, solver, EMA decay, reference and seed."""

    name: str
    value: float
    protocol: dict[str, Any]


class Evaluated(NamedTuple):
    """The first samples of this rank (n,C,H,W) uint8, one result per metric, equal on all ranks, and how many images
    a row of the picture should have. In a paired task the images are triples: what was given, sample, truth."""

    images: Tensor
    results: list[Result]
    columns: int | None


class Evaluation:
    """Metrics of a model against its data set.

    The Fréchet distance uses all images of the reference split, as is the custom; the kernel distance, precision and
    recall use as many of them as there are samples, evenly spread, because they compare sets of equal size. A
    conditional model is also asked how often the extractor's class is the one it was asked for (`agreement`), where
    the extractor knows the data's classes; a paired task adds the means of `PAIRED`, with or without an extractor.

    Args:
        num_samples: N generated images, at least twice the extractor's dimensions (4096 for Inception).
        batch_size: samples at a time, on each process; changes no latent.
        names: which of fid, kid, is, precision, recall, and bits_per_dim (see `metrics.bound`), which takes T network
            calls for each of N test images and no samples; an empty list evaluates nothing.
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
        known = [*METRICS, BITS_PER_DIM]
        if not set(names) <= set(known) or len(set(names)) < len(names):
            raise ValueError(f"names={list(names)} must be different ones of {known}; use [fid]")
        if split not in ("train", "test"):
            raise ValueError(f"split={split!r} must be 'train' or 'test'; use 'train', as published FIDs do")
        if set(names) - {BITS_PER_DIM} and num_samples <= NEIGHBOURS + SPLITS:
            raise ValueError(f"num_samples={num_samples} is too few for any metric; use 1000, or names=[] for none")
        self.num_samples, self.batch_size, self.names = num_samples, batch_size, tuple(names)
        self.seed, self.split = seed, split
        self.of_sets = tuple(name for name in names if name in METRICS)  # what compares samples with images

    def check(self, extractor: FeatureExtractor | None) -> None:
        """Raise the teaching error, before training, if these metrics cannot be computed with this extractor."""
        if not self.of_sets or extractor is None:
            return
        least = 2 * extractor.feature_dim
        if "fid" in self.names and self.num_samples < least:
            raise ValueError(
                f"num_samples={self.num_samples} must be at least {least}, twice the {extractor.feature_dim} "
                f"dimensions of {extractor.name}'s features; raise it, or take fid out of names"
            )
        extractor.check()

    def measures(self, data_module: ImageDataModule) -> bool:
        """Whether there is anything to measure on this data."""
        return self.num_samples > 0 and (self._samples(data_module) or BITS_PER_DIM in self.names)

    def _samples(self, data_module: ImageDataModule) -> bool:
        """Whether samples are measured: metrics of sets with their extractor, or a paired task."""
        return bool(self.of_sets and data_module.features is not None) or data_module.conditions.task.paired

    def result_names(self, data_module: ImageDataModule) -> list[str]:
        """Names of the results of a call with this data module, which needs no image for them, but for the bound.

        Whether the extractor knows the data's classes is seen in its answers alone; without labels nothing is compared.
        """
        extractor, paired = data_module.features, data_module.conditions.task.paired
        if not self.num_samples:
            return []
        names = [] if extractor is None else [*self.of_sets]
        if names and not paired and data_module.num_classes is not None:
            names.append(AGREEMENT)
        public = [] if extractor is None else [extractor.metric_name(name, self.num_samples) for name in names]
        public += [f"{name}{thousands(self.num_samples)}" for name in PAIRED if paired]
        if BITS_PER_DIM in self.names:
            public.append(f"{BITS_PER_DIM}{thousands(min(self.num_samples, len(data_module.source.test())))}")
        return public

    def __call__(
        self,
        denoiser: Denoiser,
        solver: Solver,
        data_module: ImageDataModule,
        device: torch.device | str = "cpu",
        progress: bool = False,
        ema_decay: float | None = None,
        keep: int = 64,
        metrics: bool = True,
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
            metrics: whether to measure; else only the pictures' samples are made.

        Raises:
            ValueError: samples that are not finite, too few samples or reference images, or a cache of something else.
        """
        extractor, conditions = data_module.features, data_module.conditions
        paired, names = conditions.task.paired, self.of_sets if extractor is not None else ()
        self.check(extractor)
        measured = metrics and self.num_samples > 0 and self._samples(data_module)
        ids, watched = self._ids(measured, keep), Watched(conditions, keep)
        told = (self.batch_size, device, progress, conditions.of_samples, data_module.source.to_pixels)
        batches = watched(generate_batches(denoiser, solver, ids, self.seed, data_module.shape, *told), ids)
        common = {"samples": self.num_samples, "solver": solver.describe(), "ema_decay": ema_decay, "seed": self.seed}
        results: list[Result] = []
        if measured and extractor is not None and names:
            summary = self._summary(batches, ids, data_module, device)
            check_same_shape(tuple(watched.pictures.shape[1:]), data_module.source.pixels().shape)
            results = self._compare(summary, data_module, common, device, progress)
        else:
            deque(batches, maxlen=0)
        if measured and paired:
            values = gather_rows(watched.values.to(device)).cpu()[: self.num_samples]
            results += self._compare_pairs(values, data_module, common)
        if metrics and self.num_samples > 0 and BITS_PER_DIM in self.names:
            how = (self.num_samples, self.batch_size, self.seed, device, progress)
            bits, record = mean_bits_per_dim(denoiser, data_module, *how)
            name = f"{BITS_PER_DIM}{thousands(record['images'])}"
            results.append(Result(name, bits, record | {"ema_decay": ema_decay}))
        return Evaluated(watched.pictures, results, watched.columns)

    def _ids(self, measured: bool, keep: int) -> range:
        """The samples that this rank makes: its share of all, or pictures on the first rank alone."""
        share = math.ceil(self.num_samples / world_size())
        return range(rank() * share, (rank() + 1) * share) if measured else range(0 if rank() else keep)

    def _summary(
        self, batches: Iterator[Tensor], ids: range, data: ImageDataModule, device: torch.device | str
    ) -> Summary:
        """Of all ranks' samples; the last rank makes a few too many if the share is not whole."""
        extractor, conditions, done = data.features, data.conditions, 0
        summary = Summary(self.of_sets, self.num_samples, extractor.feature_dim, device)
        for found in features_of(extractor, batches, len(ids), device):
            here = ids[done : done + len(found.features)]
            summary.update(here, found)
            if not conditions.task.paired and found.logits.shape[1] == data.num_classes:
                summary.compare_classes(here, found.logits, conditions.of_samples(here)["label"])
            done += len(here)
        return summary.across_ranks()

    def _compare(
        self, generated: Summary, data: ImageDataModule, common: dict[str, Any], device: torch.device | str, bar: bool
    ) -> list[Result]:
        """The metrics of sets, and how often the extractor's class is the one that was asked for."""
        extractor, source = data.features, data.source.pixels()
        images = source.train() if self.split == "train" else source.test()
        points = self.num_samples if set(self.of_sets) & COMPARE_POINTS else 0
        told = (source.name, self.split, points)
        real = reference_statistics(images, extractor, *told, device=device, progress=bar)
        values = measure(generated, real.statistics, real.features)
        if generated.agreement is not None:
            values[AGREEMENT] = generated.agreement
        return [
            Result(extractor.metric_name(name, self.num_samples), value, protocol(name, real, common))
            for name, value in values.items()
        ]

    def _compare_pairs(self, values: Tensor, data: ImageDataModule, common: dict[str, Any]) -> list[Result]:
        """Means over samples of what compares each with its truth."""
        source = data.source
        reference = {
            "dataset": source.name,
            "split": "test",
            "fingerprint": source.test().fingerprint(),
            "n": min(self.num_samples, len(source.test())),
        }
        means = values.mean(0).tolist()
        return [
            Result(f"{name}{thousands(self.num_samples)}", mean, common | {"reference": reference})
            for name, mean in zip(PAIRED, means, strict=True)
        ]


def protocol(name: str, real: Reference, common: dict[str, Any]) -> dict[str, Any]:
    """All that a metric of sets depends on: the common part, the extractor, the reference and its own settings."""
    record, samples = real.metadata, common["samples"]
    settings = {
        "kid": {"kernel": "(x.y/D+1)^3", "subset_size": min(1000, samples, len(real.features))},
        "is": {"splits": SPLITS},
        "precision": {"neighbours": NEIGHBOURS},
        "recall": {"neighbours": NEIGHBOURS},
    }
    compared = {"fid": record["images"], "is": 0, AGREEMENT: 0}.get(name, record["subset"])
    return {
        "extractor": {"name": record["extractor"], "weights_sha256": record["weights_sha256"]},
        **common,
        "reference": {key: record[key] for key in ("dataset", "split", "fingerprint", "shape")} | {"n": compared},
        **settings.get(name, {}),
    }
