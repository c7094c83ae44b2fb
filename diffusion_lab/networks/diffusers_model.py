"""Networks of the diffusers library: UNet2DModel, DiTTransformer2DModel, and others that are called as these are.

    network(x_t, t, label) = model(x_t, timestep=t, class_labels=label).sample

The library takes seconds to import, so only building such a network imports it.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from diffusion_lab.arguments import ReadPath
from diffusion_lab.networks.checks import check_classes, check_label, keywords
from diffusion_lab.networks.for_diffusers import ForDiffusers


class Classes(NamedTuple):
    """How a class of the library is given the number of classes.

    Attributes:
        argument: of the constructor.
        own_null: whether its table has one row more, for its own label dropout, and it always needs a label.
    """

    argument: str
    own_null: bool


CLASSES = (Classes("num_class_embeds", False), Classes("num_embeds_ada_norm", True))
SHAPE = ("in_channels", "out_channels", "sample_size")  # arguments that the other parts define


class Diffusers(nn.Module):
    """(x_t, t, label) -> (B, out_channels, image_size, image_size), by a model of the diffusers library.

    Any class of `diffusers.models` whose constructor takes in_channels, out_channels, sample_size and a number of
    classes, and whose call needs no more than images, timestep and class_labels.

    A table of labels has `num_classes` rows, the null label included. The library's transformers have one row more
    than their argument says, so that one is `num_classes - 1`; without labels every image has label 0.

    Differs from diffusers: its transformers replace a tenth of the labels by the null label in training, drawn anew in
    each block. This is off, because `dataset.label_dropout` decides it, from the run's own stream.

    The weights of a folder are not read here: `init_from=FOLDER` starts a run from them, and records what they are.

    Args:
        in_channels: channels of x_t.
        out_channels: channels of the output: image channels x (heads of the prediction + variance channels).
        image_size: pixels per side.
        architecture: name of a class of `diffusers.models`.
        arguments: those of its constructor, without in_channels, out_channels, sample_size and the number of classes.
        num_classes: number of class labels, the null label included; None: the network takes no label.
        folder: folder that `save_pretrained` has written, whose architecture stands in place of the two arguments; its
            weights are loaded by init_from=FOLDER. None: the arguments hold.
        found: {"architecture", "arguments"} as the configuration has read them from the folder (`saved_config`), or
            what is wrong with the folder, as a text. A run records it and does not read the folder again.

    Raises:
        FileNotFoundError: diffusers is not installed.
        ValueError: there is no such class, it takes no such argument, or it cannot be built for these images.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        image_size: int,
        architecture: str = "UNet2DModel",
        arguments: dict[str, Any] | None = None,
        num_classes: int | None = None,
        folder: ReadPath | None = None,
        found: dict[str, Any] | str | None = None,
    ) -> None:
        super().__init__()
        check_classes(num_classes)
        if isinstance(found, str):
            raise ValueError(
                f"folder={folder} must be a folder that diffusers' save_pretrained wrote, and it {found}; "
                "copy it to this machine and give its path"
            )
        given = dict(arguments or {}) if found is None else dict(found["arguments"])
        kind, classes = _kind(architecture if found is None else found["architecture"])
        if found is not None:  # its shape and classes are those of the images that it was trained on
            given = {key: value for key, value in given.items() if key not in (*SHAPE, classes.argument)}
        _check_arguments(kind, classes, given)
        self.num_classes, self.needs_label = num_classes, classes.own_null
        rows = (num_classes or 1) - 1 if classes.own_null else num_classes
        given |= {**dict(zip(SHAPE, (in_channels, out_channels, image_size), strict=True)), classes.argument: rows}
        self._try(kind, given)
        self.model = _without_own_dropout(kind(**given))

    def forward(self, x: Tensor, t: Tensor, label: Tensor | None = None) -> Tensor:
        """x (B,in_channels,H,W), t (B,) integers or reals, label (B,) in 0..num_classes-1 -> (B,out_channels,H,W)."""
        return self._answer(self.model, x, t, label)

    def for_diffusers(self) -> ForDiffusers:
        """The model itself."""
        config = {key: value for key, value in cast(Any, self.model).config.items() if not key.startswith("_")}
        config.pop("sample_size")
        return ForDiffusers(type(self.model).__name__, config, self.model.state_dict(), needs_label=self.needs_label)

    def _answer(self, model: nn.Module, x: Tensor, t: Tensor, label: Tensor | None) -> Tensor:
        check_label(label, self.num_classes)
        if label is None and self.needs_label:
            label = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        return model(x, timestep=t, class_labels=label, return_dict=False)[0]

    def _try(self, kind: type[nn.Module], given: Mapping[str, Any]) -> None:
        """Build and call it on the meta device, without memory, time or random numbers: many errors of the library
        only come up in a call."""
        channels, outputs, size = (given[key] for key in SHAPE)
        try:
            with torch.device("meta"), torch.no_grad():
                label = None if self.num_classes is None else torch.zeros(1, dtype=torch.int64)
                x, t = torch.zeros(1, channels, size, size), torch.zeros(1, dtype=torch.int64)
                shape = tuple(self._answer(kind(**given), x, t, label).shape)
        except Exception as error:  # of any class
            fault = f"diffusers says: {' '.join(str(error).split())[:300]}"
        else:
            fault = f"its output is {shape}" if shape != (1, outputs, size, size) else ""
        if fault:
            raise ValueError(
                f"architecture={kind.__name__} must take images of {channels}x{size}x{size} and give {outputs} "
                f"channels, and {fault}; change its arguments"
            )


def _kind(name: str) -> tuple[type[nn.Module], Classes]:
    """The class of the library, and how it is given the number of classes."""
    if importlib.util.find_spec("diffusers") is None:
        raise FileNotFoundError(
            f"architecture={name} must be built with diffusers, which is missing; "
            "run: python -m pip install 'diffusion-lab[diffusers]'"
        )
    from diffusers import models
    from diffusers.models.modeling_utils import ModelMixin

    # A name may come from a stranger's folder: it is looked up among the library's models and nowhere else.
    kind = getattr(models, name, None) if re.fullmatch(r"[A-Z]\w*", name) else None
    if inspect.isclass(kind) and issubclass(kind, ModelMixin):
        parameters = inspect.signature(kind).parameters
        known = [classes for classes in CLASSES if classes.argument in parameters]
        called = keywords(kind.forward, behind=2)
        alike = called.needed <= {"timestep"} and {"timestep", "class_labels", "return_dict"} <= called.names
        if len(known) == 1 and set(SHAPE) <= set(parameters) and alike and not called.any:
            return kind, known[0]
    raise ValueError(
        f"architecture={name} must be a network of diffusers that needs only images, times and classes; "
        "use UNet2DModel or DiTTransformer2DModel"
    )


def _check_arguments(kind: type[nn.Module], classes: Classes, given: Mapping[str, Any]) -> None:
    parameters = inspect.signature(kind).parameters
    for key in given:
        if key in (*SHAPE, classes.argument):
            raise ValueError(
                f"arguments.{key}={given[key]} must be left out, because data set and prediction define it; remove it"
            )
        if key not in parameters:
            raise ValueError(
                f"arguments.{key}={given[key]} must be an argument of diffusers' {kind.__name__}; "
                f"it takes {', '.join(sorted(set(parameters) - {*SHAPE, classes.argument}))}"
            )


def _without_own_dropout(model: nn.Module) -> nn.Module:
    from diffusers.models.embeddings import LabelEmbedding

    for module in model.modules():
        if isinstance(module, LabelEmbedding):
            module.dropout_prob = 0.0
    return model
