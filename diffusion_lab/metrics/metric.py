"""Base class of metrics: one number of a trained model, with its direction and what it is computed from.

    value = metric(given)

A metric lists what it needs; `Given` has it, computed once for all metrics of an evaluation:

    needs       given                                                                          kept for N samples
    features    features (N,D) of the samples, and reference.features (min(N,M),D)                   N D float32
    moments     statistics, their mean and covariance, and reference.statistics of all M images      D^2 float64
    logits      logits (N,K) of the extractor for the samples                                        N K float32
    scores      scores, the sums behind the inception score                                 10 (K + 2) float64
    samples     samples (N,C,H,W) uint8                                                              N C H W bytes
    pairs       a sample and its truth, batch by batch: see `SampleMetric`                           N float64
    classes     the class of a sample's condition, batch by batch: see `SampleMetric`                N float64
    held_out    held_out.statistics of all test images, besides moments                              D^2 float64
    nearest     nearest (N,3): `copying.RealImages.nearest` of each sample                         3 N float64
    model       model: the denoiser, its data, the solver and how they are evaluated                 -

A metric is left out if the data do not have the extractor, pairs or classes that it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import nearest
from diffusion_lab.data import ImageDataModule
from diffusion_lab.failure import WrongResult
from diffusion_lab.metrics.features import FeatureExtractor, thousands
from diffusion_lab.metrics.generated import Batch, Generated, ScoreSums, Statistics
from diffusion_lab.metrics.reference import Reference, reference_statistics
from diffusion_lab.metrics.sampling import Latents
from diffusion_lab.solvers import Solver

Need = Literal["features", "moments", "logits", "scores", "samples", "pairs", "classes", "held_out", "nearest", "model"]
T = TypeVar("T")
OF_CLASSES = frozenset({"logits", "scores", "classes"})  # of an extractor that has class scores
OF_REFERENCE = frozenset({"features", "moments"})  # which are compared with those of other images
OF_EXTRACTOR = OF_CLASSES | OF_REFERENCE | {"held_out"}
OF_IMAGES = OF_REFERENCE | {"pairs", "held_out", "nearest", "model"}  # for which images of the data set are read


class Model(NamedTuple):
    """The evaluated model, and how it is evaluated.

    Attributes:
        denoiser: the model, a denoiser or a generator, on `device`, with the evaluated weights.
        solver: how samples are made.
        data: the images that it was trained on and their conditions.
        device: device of the computation.
        batch_size: images at a time in the denoiser, on this process.
        latents: seed of the samples' latents, and the rule that gives it, which belongs into a protocol.
        ema_decay: decay or name of the average that the weights are, None for raw weights.
        progress: whether to show it.
    """

    denoiser: Any  # of the class `Metric.models`
    solver: Solver
    data: ImageDataModule
    device: torch.device | str = "cpu"
    batch_size: int = 250
    latents: Latents = Latents(0, 0)
    ema_decay: float | str | None = None
    progress: bool = False

    @property
    def seed(self) -> int:
        """Seed of the latents and of all other random numbers of a metric."""
        return self.latents.seed

    def reference(self, split: str, points: int = 0, few: bool = False) -> Reference:
        """Statistics of a split of its data's images, which may be `few`; the features of `points` of them are kept."""
        source, extractor = self.data.source.pixels(), self.data.features
        images = source.train() if split == "train" else source.test()
        return reference_statistics(
            images, extractor, source.name, split, points, device=self.device, progress=self.progress, few=few
        )


@dataclass
class Given:
    """What a metric is computed from; everything is equal on all processes.

    Args:
        num_samples: N.
        generated: what was collected from the samples.
        compare: computes `reference` at its first use.
        judged: the model; None if image sets are compared without one.
    """

    num_samples: int
    generated: Generated
    compare: Callable[[], Reference]
    judged: Model | None = None
    _done: dict[Any, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def reference(self) -> Reference:
        """Statistics and features of the real images."""
        return self.compare()

    @cached_property
    def held_out(self) -> Reference:
        """Statistics of the test images."""
        return self.model.reference("test")

    @property
    def model(self) -> Model:
        """The model itself, with its data."""
        return _there(self.judged, "model")

    @cached_property
    def statistics(self) -> Statistics:
        """Mean (D,) and covariance (D,D) of the samples' features."""
        return _there(self.generated.moments, "moments").statistics()

    @property
    def scores(self) -> ScoreSums:
        """The sums behind the inception score."""
        return _there(self.generated.scores, "scores")

    @property
    def features(self) -> Tensor:
        """(N,D) float32 on the CPU, in the order of the samples."""
        return _there(self.generated.rows("features"), "features")

    @property
    def logits(self) -> Tensor:
        """(N,K) float32 on the CPU."""
        return _there(self.generated.rows("logits"), "logits")

    @property
    def samples(self) -> Tensor:
        """(N,C,H,W) uint8 on the CPU."""
        return _there(self.generated.rows("samples"), "samples")

    @property
    def nearest(self) -> Tensor:
        """(N,3) float64 on the CPU, in the order of the samples."""
        return _there(self.generated.rows("nearest"), "nearest")

    def once(self, function: Callable[..., Any], *settings: Any) -> Any:
        """function(features, reference.features, *settings), computed once for all metrics that use it."""
        key = (function, *settings)
        if key not in self._done:
            self._done[key] = function(self.features, self.reference.features, *settings)
        return self._done[key]


def _there(part: T | None, need: Need) -> T:
    if part is None:
        raise ValueError(f"given.{need} must be named in the metric's needs; use needs = frozenset({{{need!r}}})")
    return part


class Metric(ABC):
    """One number of a model.

    A subclass defines the attributes and `__call__`; its file conf/metric/NAME.yaml has the constructor's arguments.

    Attributes:
        name: name in `metrics.names`, equal to the name of its yaml file.
        better: "lower" or "higher"; "neither" if the best value is that of the data, with which it has to be compared.
        compared_by: what says how far two models are apart: "ratio" if the value varies in proportion to its size, as a
            distance of distributions does, or "difference". A table with a value that is not positive has differences.
        needs: what `given` must have.
        units: units such as "dB"; "" if there are none.
        elsewhere: its name if the extractor is not Inception, because such values cannot be compared; "" for `name`.
        models: class of the models that it is defined for.
    """

    name: str
    better: Literal["lower", "higher", "neither"]
    needs: frozenset[Need]
    compared_by: Literal["ratio", "difference"] = "difference"
    units: str = ""
    elsewhere: str = ""
    models: ClassVar[type[nn.Module]] = nn.Module

    @abstractmethod
    def __call__(self, given: Given) -> float | None:
        """The value, None if it is not defined for this model; called on all processes."""

    def interval(self, given: Given) -> tuple[float, float] | None:
        """The 95 % interval of the value of this model, if the metric has one; called if there is a value."""
        return None

    def reference(self, given: Given) -> Reference:
        """What the samples are compared with, if the metric needs features or moments."""
        return given.reference

    def check(self, num_samples: int, data: ImageDataModule) -> None:
        """Raise ValueError, before training, if it cannot be evaluated with `num_samples` samples of the data."""
        return  # by default it can

    def check_model(self, model: Any) -> None:
        """Raise ValueError, before training, if it is not defined for this model, which is of the class `models`."""
        return  # by default it is

    def settings(self, given: Given) -> dict[str, Any]:
        """Plain values for the record: what else the value depends on."""
        return {}

    def count(self, num_samples: int, data: ImageDataModule) -> int:
        """The number of images in the public name."""
        return num_samples

    def calls(self, images: int, timesteps: int) -> int:
        """Network calls for one image each, beside those that make samples, on `count` images and T timesteps: for the
        estimate of a run's cost."""
        return 0

    def public_name(self, count: int, extractor: FeatureExtractor | None) -> str:
        """The name of a result on `count` images: `fid50k`, `fd1k_digits`, `psnr1k`."""
        suffix = extractor.suffix if extractor is not None and self.needs & (OF_EXTRACTOR | {"nearest"}) else ""
        return f"{self.elsewhere if suffix and self.elsewhere else self.name}{thousands(count)}{suffix}"


def check_metric(metric: Metric) -> Metric:
    """The metric, if its class defines the attributes of `Metric`.

    Raises:
        ValueError: an attribute is missing or has a value that is not allowed.
    """
    among = {
        "better": ("one of ", ("lower", "higher", "neither")),
        "compared_by": ("one of ", ("ratio", "difference")),
        "needs": ("some of ", get_args(Need)),
    }
    for key in ("name", *among):
        value = getattr(metric, key, None)
        words = [value] if isinstance(value, str) else sorted(map(str, value or ()))
        how, allowed = among.get(key, ("the name that is typed in metrics.names", words))
        wrong = [word for word in words if word not in allowed]
        if wrong or not any(words):
            shown = repr(value) if isinstance(value, str | None) else f"{{{', '.join(map(repr, words))}}}"
            hint = nearest(wrong[0], allowed) if wrong else ""
            must = f"{how}{', '.join(allowed) if key in among else ''}{hint}"
            raise ValueError(f"{type(metric).__name__}.{key}={shown} must be {must}; correct it in the class")
    return metric


def value_of(metric: Metric, given: Given) -> float | None:
    """The metric's value.

    Raises:
        WrongResult: it is neither a number nor None.
    """
    value = metric(given)
    one = isinstance(value, int | float) or getattr(value, "shape", None) in ((), (1,))
    if value is not None and not one:
        raise WrongResult.of(metric, "__call__", "one number, or None if it is not defined", value)
    return None if value is None else float(value)


def samples_alone() -> list[str]:
    """Names of this package's metrics that need nothing but samples."""
    ours = (kind for kind in Metric.__subclasses__() if kind.__module__.startswith(f"{__package__}."))
    return sorted(kind.name for kind in ours if getattr(kind, "needs", None) == {"samples"})


class SampleMetric(Metric):
    """The mean over the samples of a value of each sample, e.g. its distance to its truth.

    It is computed batch by batch, without keeping what it needs.
    """

    @abstractmethod
    def of(self, batch: Batch) -> Tensor | None:
        """(b,) float64: the values of a batch of samples; None if there are none."""

    def __call__(self, given: Given) -> float | None:
        values = given.generated.rows(self.name)
        # The mean of a column of a table: another order of summation would change the last bit.
        return None if values is None else float(torch.stack([values, values], 1).mean(0)[0])
