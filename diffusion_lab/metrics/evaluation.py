"""The evaluation of a model: all metrics, with their protocols, from the same samples and features."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import ReadPath, check_integer
from diffusion_lab.data import ImageDataModule
from diffusion_lab.distributed import raised_on_all, rank, world_size
from diffusion_lab.metrics.copying import Copying, RealImages, nearest_extractor, real_images, used_extractor
from diffusion_lab.metrics.features import FeatureExtractor
from diffusion_lab.metrics.generated import Batch, Generated
from diffusion_lab.metrics.held_out import HeldOutFrechetDistance
from diffusion_lab.metrics.image_sets import (
    check_classes,
    check_extractor,
    check_images,
    check_points,
    check_reference,
    check_same_shape,
    check_weights,
)
from diffusion_lab.metrics.metric import (
    OF_CLASSES,
    OF_EXTRACTOR,
    OF_IMAGES,
    OF_REFERENCE,
    Given,
    Metric,
    Model,
    SampleMetric,
    check_metric,
    samples_alone,
)
from diffusion_lab.metrics.pictures import FirstSamples
from diffusion_lab.metrics.reference import Reference, reference_from_file
from diffusion_lab.metrics.result import MetricResult, result_of
from diffusion_lab.metrics.sample_metrics import PSNR, Agreement, HueError
from diffusion_lab.metrics.sampling import PICTURES, Latents, generate_batches
from diffusion_lab.solvers import Solver


class Evaluated(NamedTuple):
    """The samples of the picture (n,C,H,W) uint8, none but on rank 0, one result per metric, equal on all ranks, and
    the number of images per row of the picture. In a paired task the images are triples: condition, sample, truth."""

    images: Tensor
    results: list[MetricResult]
    columns: int | None


class Evaluation:
    """Metrics of a model against its data set.

    A metric of features is left out if the data have no extractor. Metrics without extra cost are always evaluated: the
    share of samples of the right class, if features are extracted and the extractor has the classes of a conditional
    model, and in a paired task the distance of each sample to its truth. Beside a Fréchet distance to the
    training images, which rewards a model that copies them, that to the test images and `copying` are always measured,
    except in paired tasks, where samples are made from test images.

    Args:
        metrics: metrics with different names; may be empty. In a configuration this is `names`, a list of names of yaml
            files in the group `metric`.
        num_samples: N generated images; 0 for none. fid needs at least twice the dimensions of the extractor's
            features: 128 on digits and fashion_mnist14 and with a data set's own features, 256 on fashion_mnist, 4096
            with Inception.
        batch_size: images at a time in the model that is evaluated, on each process: samples, and test images of its
            losses. It does not change the latents. The extractor of features has its own,
            `dataset.features.batch_size`.
        seed: null: the latents, and all other random numbers of a metric, are a function of the run's seed and the
            sample's number, so they are equal for all methods with that seed and different between seeds; grids of
            samples have one set for all runs. A number >= 0: the latents of that seed for all runs. An interval over
            seeds then leaves out the effect of the latents and is too narrow.
        split: reference images: train, as is common, or test, which training never saw.
        reference: npz file with the mean and covariance to compare with, such as EDM's fid-refs, for fid alone; None
            for the data set's own statistics.

    Raises:
        ValueError: an argument out of range; from `check` and `check_model`, a metric that cannot be measured on the
            data, or of the model.
    """

    always: tuple[Metric, ...] = (Agreement(), PSNR(), HueError())
    beside_distance: tuple[Metric, ...] = (HeldOutFrechetDistance(), Copying())

    def __init__(
        self,
        num_samples: int = 1000,
        batch_size: int = 250,
        metrics: Sequence[Metric] = (),
        seed: int | None = None,
        split: str = "train",
        reference: ReadPath | None = None,
    ) -> None:
        for name, value, lowest in (("num_samples", num_samples, 0), ("batch_size", batch_size, 1)):
            check_integer(name, value, lowest, "leave it out for the default")
        if seed is not None:
            check_integer("seed", seed, 0, "use null for the latents of the run's seed")
        names = [check_metric(metric).name for metric in metrics]
        if len(set(names)) < len(names):
            raise ValueError(f"names={names} must be different metrics; remove the duplicates")
        if split not in ("train", "test"):
            raise ValueError(f"split={split!r} must be 'train' or 'test'; use 'train', as published FIDs do")
        if metrics and not num_samples:
            raise ValueError(
                "num_samples=0 must be at least 1 to measure anything, and scale=smoke sets it to 0; add "
                "num_samples=1000, or metrics.names=[] for none"
            )
        self.num_samples, self.batch_size, self.metrics = num_samples, batch_size, tuple(metrics)
        self.seed, self.split = seed, split
        self.reference = None if reference is None else str(reference)

    def check_weights(self, data_module: ImageDataModule) -> None:
        """The part of `check` that is about the extractor's weights, an error in whose file is one of the data set's
        `features`: raise ValueError or FileNotFoundError if a metric needs them and they cannot be used here; the
        latter also says what can be measured without."""
        measured = self.measured(data_module)
        if data_module.features is None or not (featured := self._featured(measured, data_module)):
            return
        rest = [metric.name for metric in self.metrics if metric in measured and metric.name not in featured]
        check_weights(data_module.features, featured, rest or samples_alone())

    def _featured(self, measured: Sequence[Metric], data: ImageDataModule) -> list[str]:
        return [metric.name for metric in self.metrics if metric in measured and used_extractor(metric, data)]

    def check(self, data_module: ImageDataModule) -> None:
        """Raise ValueError or FileNotFoundError, before training, if these metrics cannot be evaluated on this data."""
        paired = data_module.conditions.task.paired
        for metric in self.metrics:
            if "pairs" in metric.needs and not paired:
                raise ValueError(f"names=[{metric.name}] must have a truth for each sample; use task=super_resolution")
            if "classes" in metric.needs and (paired or data_module.num_classes is None):
                raise ValueError(f"names=[{metric.name}] must have classes; use dataset.conditional=true")
        check_classes(data_module.features, self.metrics)
        measured = self.measured(data_module)
        for metric in measured:
            if metric in self.metrics:  # the others are left out where they are not defined
                metric.check(self.num_samples, data_module)
        if featured := self._featured(measured, data_module):
            check_extractor(data_module.features, data_module.source, featured)
        if self.reference is not None:
            check_reference(self.reference, data_module.features, measured)
            return
        if compared := [one.name for one in self.metrics if one in measured and "moments" in one.needs]:
            check_images(data_module.features, data_module.source, self.split, compared)
        if points := [one for one in self.metrics if one in measured and "features" in one.needs]:
            check_points(data_module.source, self.split, points)

    def check_model(self, model: nn.Module) -> None:
        """Raise ValueError, before training, if a metric is not defined for this model, a denoiser or a generator."""
        for metric in self.metrics:
            if not isinstance(model, metric.models):
                of = f"{metric.models.__name__}, and this model has a {type(model).__name__}"
                raise ValueError(f"names=[{metric.name}] must be measured on a {of}; leave it out")
            metric.check_model(model)

    def measured(self, data_module: ImageDataModule) -> list[Metric]:
        """The metrics of `metrics` and `always` that can be evaluated on this data; those that call the model last.

        Whether the extractor has the data's classes is only known from its output.
        """
        if not self.num_samples:
            return []
        paired = data_module.conditions.task.paired
        there = {"samples", "model"} | ({"pairs"} if paired else {"nearest"})
        if data_module.features is not None:
            labels = not paired and data_module.num_classes is not None
            there |= OF_EXTRACTOR if labels else OF_EXTRACTOR - {"classes"}
            there -= set() if data_module.features.has_classes else OF_CLASSES
        named = [metric for metric in self.metrics if metric.needs <= there]
        if not any(metric.needs & OF_EXTRACTOR for metric in named):
            there -= OF_EXTRACTOR  # features are not extracted for the metrics of `always` alone
        names = {metric.name for metric in named}
        beside = [*self.always, *([] if paired else self._beside_distance(named))]
        beside = [metric for metric in beside if metric.needs <= there and metric.name not in names]
        return sorted([*named, *beside], key=lambda metric: "model" in metric.needs)

    def _beside_distance(self, named: Sequence[Metric]) -> list[Metric]:
        """The metrics beside a Fréchet distance: none to a file, and to the test images no second one."""
        if self.reference is not None or not any("moments" in metric.needs for metric in named):
            return []
        return [metric for metric in self.beside_distance if self.split == "train" or "held_out" not in metric.needs]

    def reads_images(self, data_module: ImageDataModule) -> bool:
        """Whether images of the data set are read: to compare with, for a model's loss, or as conditions."""
        compared = OF_IMAGES - (OF_REFERENCE if self.reference is not None else set())
        paired = data_module.conditions.task.paired
        return paired or any(metric.needs & compared for metric in self.measured(data_module))

    def result_names(self, data_module: ImageDataModule) -> list[str]:
        """Names of the results of a call with this data module; most of them are known without loading images."""
        return [self.result_name(metric, data_module) for metric in self.measured(data_module)]

    def directions(self, data_module: ImageDataModule) -> dict[str, str]:
        """Names of the results, each with `Metric.better`."""
        return {self.result_name(metric, data_module): metric.better for metric in self.measured(data_module)}

    def result_name(self, metric: Metric, data: ImageDataModule) -> str:
        """The name of a metric's result on this data, e.g. `fd1k_digits`."""
        return metric.public_name(metric.count(self.num_samples, data), used_extractor(metric, data))

    def __call__(
        self,
        denoiser: nn.Module,
        solver: Solver,
        data_module: ImageDataModule,
        device: torch.device | str = "cpu",
        progress: bool = False,
        ema_decay: float | str | None = None,
        keep: int = 64,
        metrics: bool = True,
        latents: Latents | None = None,
    ) -> Evaluated:
        """Sample, extract features, and compute metrics. Must be called on all ranks; each makes its share of samples.

        Args:
            denoiser: the model, a denoiser or a generator, on `device`, with the weights to evaluate.
            solver: how to sample.
            data_module: provides the shape, the reference images and the extractor (None: no metrics of features).
            device: device of sampling and extraction.
            progress: whether to show it.
            ema_decay: decay or name of the average that the weights are, None for raw weights; only recorded.
            keep: number of first samples to return, for a picture.
            metrics: whether to compute metrics; else only the samples of the picture are made.
            latents: those of the run, `Latents.of_run(seed)`, if `seed` is None; None: of a run with seed 0.

        Raises:
            ValueError: samples that are not finite, too few samples or reference images, or a cache of other images.
        """
        self.check(data_module)
        self.check_model(denoiser)
        drawn = (latents or Latents.of_run(0)) if self.seed is None else Latents(self.seed, self.seed)
        model = Model(denoiser, solver, data_module, device, self.batch_size, drawn, ema_decay, progress)
        measured = self.measured(data_module) if metrics else []
        if any(used_extractor(metric, data_module) for metric in measured):
            data_module.features.prepare(device)
        first = FirstSamples(keep, data_module.conditions.task.paired)
        generated = self._generate(model, measured, first)
        with raised_on_all():
            if first.missing and rank() == 0:
                self._complete(first, model)
        points = self.num_samples if any("features" in metric.needs for metric in measured) else 0
        few = not any("moments" in metric.needs for metric in measured)

        def compare() -> Reference:
            if self.reference is not None:
                return reference_from_file(self.reference, data_module.features)
            return model.reference(self.split, points, few)

        given = Given(self.num_samples, generated, compare, model)
        results = [result_of(metric, self.result_name(metric, data_module), given) for metric in measured]
        return Evaluated(first.pictures, [result for result in results if result is not None], first.columns)

    @property
    def pictures(self) -> int:
        """The seed of the latents of grids."""
        return PICTURES if self.seed is None else self.seed

    def calls(self, data: ImageDataModule, of_sample: int, timesteps: int, run_seed: int, grid: int) -> int:
        """Network calls for one image each of an evaluation with metrics and a grid.

        Args:
            data: if it is not here, model metrics are taken to use N images.
            of_sample: calls that make one sample.
            timesteps: T.
            run_seed: the run's seed.
            grid: images of the grid.
        """
        measured, calls = self.measured(data), 0
        for metric in measured:
            images = self.num_samples
            with suppress(FileNotFoundError):
                images = metric.count(self.num_samples, data)
            calls += metric.calls(images, timesteps)
        sampled = self.num_samples if any(metric.needs - {"model"} for metric in measured) else 0
        pictured = sampled and (self.seed is not None or run_seed == PICTURES)  # the grid is of the samples
        return calls + of_sample * (sampled if pictured else sampled + grid)

    def _generate(self, model: Model, measured: Sequence[Metric], first: FirstSamples) -> Generated:
        """Make this rank's samples and collect what the metrics need from all ranks; the last rank makes a few extra
        samples if N is not a multiple of the number of ranks. The picture gets its images if they are among them."""
        data = model.data
        needs = {need for metric in measured for need in metric.needs}
        each = {metric.name: metric.of for metric in measured if isinstance(metric, SampleMetric)}
        extractor = data.features if any(used_extractor(metric, data) for metric in measured) else None
        real = real_images(data, model.device, model.progress) if "nearest" in needs else None
        dim = extractor.feature_dim if extractor is not None else 0
        kept = {need for metric in measured if metric.name not in each for need in metric.needs}
        generated = Generated(self.num_samples, kept, each, dim, model.device)
        share = math.ceil(self.num_samples / world_size()) if needs - {"model"} else 0
        pictured = rank() == 0 and model.latents.seed == self.pictures
        with raised_on_all():  # some samples of one rank may not be finite
            for ids, samples in self._batches(model, range(rank() * share, (rank() + 1) * share), model.latents.seed):
                given, truths = _given_and_truth(data, ids)
                if pictured:
                    first.update(samples, given, truths)
                generated.update(_batch(ids, samples, truths, model, extractor, real))
        return generated.across_ranks()

    def _complete(self, first: FirstSamples, model: Model) -> None:
        """Make the images of a picture that it does not have yet."""
        for ids, samples in self._batches(model, first.missing, self.pictures):
            first.update(samples, *_given_and_truth(model.data, ids))

    def _batches(self, model: Model, ids: range, seed: int) -> Iterator[tuple[range, Tensor]]:
        """Numbers and samples (<= batch_size,C,H,W) uint8, batch by batch."""
        batches = generate_batches(
            model.denoiser,
            model.solver,
            ids,
            seed,
            model.data.shape,
            batch_size=self.batch_size,
            device=model.device,
            progress=model.progress,
            conditions=model.data.conditions.of_samples,
            to_pixels=model.data.source.to_pixels,
        )
        done = 0
        for samples in batches:
            yield ids[done : done + len(samples)], samples
            done += len(samples)


def _given_and_truth(data: ImageDataModule, ids: range) -> tuple[Tensor | None, Tensor | None]:
    """Condition and truth (b,C,H,W) uint8 of some samples of a paired task, else None."""
    return data.conditions.given_and_truth(ids) if data.conditions.task.paired else (None, None)


def _batch(
    ids: range,
    samples: Tensor,
    truths: Tensor | None,
    model: Model,
    extractor: FeatureExtractor | None,
    real: RealImages | None,
) -> Batch:
    """A batch of samples with what the metrics need."""
    data = model.data
    if extractor is None:
        nearest = real and real.nearest(samples.to(model.device).flatten(1))
        return Batch(ids, samples, truths=truths, nearest=nearest)
    check_same_shape(tuple(samples.shape[1:]), data.source.pixels().shape)
    there = samples.to(model.device)
    features, logits = extractor(there)
    known = truths is None and logits.shape[1] == data.num_classes
    classes = data.conditions.of_samples(ids)["label"] if known else None
    compared = there.flatten(1) if nearest_extractor(data) is None else features
    return Batch(ids, samples, features, logits, truths, classes, real and real.nearest(compared))
