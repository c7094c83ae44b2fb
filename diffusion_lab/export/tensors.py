"""The network's tensors by name in one file, and beside it what builds the network and the schedule."""

from __future__ import annotations

import inspect
import io
import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from diffusion_lab.diffusion import Denoiser
from diffusion_lab.export.form import Form
from diffusion_lab.files import write_json, write_whole
from diffusion_lab.networks.second_time import own_second_time, with_second_time
from diffusion_lab.training import TrainedDiffusion

CONFIG = "config.json"
# What a denoiser is made of, with the network.
PARTS = ("schedule", "prediction", "variance", "preconditioning", "time")


class TensorFile(Form):
    """One file of tensors, named as in the network's `state_dict`, and `config.json`:

        network     `_target_`, the class, and all arguments of its constructor
        parts       schedule, prediction, variance, preconditioning and time, as in the run's configuration; also the
                    model, if its denoiser is a class of its own
        classes     of a class-conditional model: the names of the labels 0, 1, ..
        null_label  of one that was trained with label dropout: the label of no class, the last of `num_classes`
        second_time  of a network that takes an interval: the arguments of `with_second_time`

    `train init_from=FILE` starts a run from the file.
    """

    name: ClassVar[str]
    reading: ClassVar[str]  # Python that gives the tensors

    def write(self, trained: TrainedDiffusion, folder: Path) -> None:
        tensors = own_tensors(trained.denoiser.network)  # nothing else has some
        write_whole(folder / self.name, self.content(tensors))
        own = () if type(trained.denoiser) is Denoiser else ("model",)
        parts = {key: trained.config.get(key) for key in (*PARTS, *own)}
        content = {"network": network_config(trained), "parts": parts} | _classes(trained)
        if second := own_second_time(trained.denoiser.network):
            content["second_time"] = {"layer": second.layer, "scale": second.scale}
        write_json(folder / CONFIG, content)

    @abstractmethod
    def content(self, tensors: dict[str, Tensor]) -> bytes:
        """The bytes of the file."""

    def usage(self, trained: TrainedDiffusion) -> str:
        module, _, name = network_config(trained)["_target_"].rpartition(".")
        second, importing, adding = own_second_time(trained.denoiser.network), [], []
        if second:
            importing = [f"from {with_second_time.__module__} import {with_second_time.__name__}"]
            adding = [f'with_second_time(network, "{second.layer}", {second.scale})  # it takes the keyword `interval`']
        return "\n".join(
            [
                "import json",
                "from pathlib import Path",
                "",
                "import torch",
                f"from {module} import {name}",
                *importing,
                self.reading,
                "",
                f'config = json.loads(Path("{CONFIG}").read_text())["network"]',
                'del config["_target_"]',
                f"network = {name}(**config)",
                *adding,
                "network.load_state_dict(tensors)",
                "network.eval()",
                "",
                *_one_prediction(trained),
            ]
        )


def own_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor on the CPU with memory of its own: tied weights are written under each of their names."""
    tensors, places = {}, set()
    for key, value in network.state_dict().items():
        there = value.detach().cpu().contiguous()
        place = there.untyped_storage().data_ptr()
        tensors[key] = there.clone() if place in places else there
        places.add(place)
    return tensors


class Safetensors(TensorFile):
    """`model.safetensors`, which any program can read and which runs no code."""

    name = "model.safetensors"
    reading = f'from safetensors.torch import load_file\n\ntensors = load_file("{name}")'

    def content(self, tensors: dict[str, Tensor]) -> bytes:
        from safetensors.torch import save

        return save(tensors, {"format": "pt"})


class Pickled(TensorFile):
    """`model.pt`, written by `torch.save`; `torch.load(..., weights_only=True)` reads it."""

    name = "model.pt"
    reading = f'\ntensors = torch.load("{name}", weights_only=True)'

    def content(self, tensors: dict[str, Tensor]) -> bytes:
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        return buffer.getvalue()


def _one_prediction(trained: TrainedDiffusion) -> list[str]:
    """Python that calls the network once, at the last timestep, on noise, and says what goes in and what comes out."""
    denoiser, conditions, shape = trained.denoiser, trained.data.conditions, (4, *trained.data.shape)
    last, times = denoiser.num_timesteps - 1, denoiser.time.values(denoiser.schedule)
    scales = denoiser.preconditioning.input_scale(denoiser.schedule)
    signal, noise = (float(table[-1]) for table in (denoiser.schedule.signal_scale, denoiser.schedule.noise_scale))
    time = f"{last})  # of 0..{last}" if times is None else f"{float(times[-1]):.8g})  # what timestep {last} is here"
    pixels = trained.data.source.decoding() is None
    images = "images in [-1, 1]" if pixels else "the images being latents of mean 0 and variance 1"
    lines = [
        f"# x = {signal:.3g} image + {noise:.3g} noise at timestep {last}, {images}; here there is no image",
        f"x = {'' if f'{noise:.6g}' == '1' else f'{noise:.6g} * '}torch.randn{shape}",
        f"t = torch.full((4,), {time}",
    ]
    given = conditions.task.condition(torch.zeros(shape))
    for key, value in given.items():
        lines.append(f"{key} = torch.zeros{tuple(value.shape)}  # a condition of {type(conditions.task).__name__}")
    if conditions.num_classes is not None:
        given["label"] = torch.zeros(4)
        lines.append(f"label = torch.arange(4) % {conditions.num_classes}  # the class of each row")
    words = "".join(f", {key}={key}" for key in given)
    shown = "x" if scales is None else f"{float(scales[-1]):.8g} * x"
    return [*lines, "with torch.no_grad():", f"    out = network({shown}, t{words})", f"# {_meaning(trained)}"]


def _meaning(trained: TrainedDiffusion) -> str:
    """What the channels of the network's output are."""
    denoiser, channels = trained.denoiser, trained.data.shape[0]
    kind, variance = type(denoiser.prediction), denoiser.variance
    words = (inspect.getdoc(kind) or "").partition("\n")[0]
    rest = f", then {variance.channels * channels} of {type(variance).__name__}" if variance.channels else ""
    return f"out has {denoiser.prediction.heads * channels} channels of {kind.__name__}{rest}. {kind.__name__}: {words}"


def _classes(trained: TrainedDiffusion) -> dict[str, Any]:
    """Entries of config.json for the labels; none for a model without."""
    conditions = trained.data.conditions
    null = {} if conditions.null_label is None else {"null_label": conditions.null_label}
    return {} if conditions.class_names is None else {"classes": list(conditions.class_names)} | null


def network_config(trained: TrainedDiffusion) -> dict[str, Any]:
    """`_target_` and all arguments of the network's constructor, also those that the other parts define."""
    own = {key: value for key, value in trained.config["network"].items() if key != "_partial_"}
    channels, size, _ = trained.data.shape
    outputs = channels * (trained.denoiser.prediction.heads + trained.denoiser.variance.channels)
    given = {"in_channels": channels, "out_channels": outputs, "image_size": size}
    labels = trained.data.conditions.num_labels
    return json.loads(json.dumps(own | given | ({} if labels is None else {"num_classes": labels})))
