"""The network's tensors by name in one file, and beside it what builds the network and the schedule."""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from diffusion_lab.export.form import Form
from diffusion_lab.files import write_json, write_whole
from diffusion_lab.training import Trained

CONFIG = "config.json"
PARTS = (
    "schedule",
    "prediction",
    "variance",
    "preconditioning",
    "time",
)  # what a denoiser is made of, with the network


class TensorFile(Form):
    """One file of tensors, named as in the network's `state_dict`, and `config.json`:

        network     `_target_`, the class, and all arguments of its constructor
        parts       schedule, prediction, variance, preconditioning and time, as in the run's configuration

    `train init_from=FILE` starts a run from the file.
    """

    name: ClassVar[str]
    reading: ClassVar[str]  # Python that gives the tensors

    def write(self, trained: Trained, folder: Path) -> None:
        tensors = {key: value.detach().cpu().contiguous() for key, value in network(trained).state_dict().items()}
        write_whole(folder / self.name, self.content(tensors))
        parts = {key: trained.config.get(key) for key in PARTS}
        write_json(folder / CONFIG, {"network": network_config(trained), "parts": parts})

    @abstractmethod
    def content(self, tensors: dict[str, Tensor]) -> bytes:
        """The bytes of the file."""

    def usage(self, trained: Trained) -> str:
        module, _, name = network_config(trained)["_target_"].rpartition(".")
        return "\n".join(
            [
                "import json",
                "from pathlib import Path",
                "",
                f"from {module} import {name}",
                self.reading,
                "",
                f'config = json.loads(Path("{CONFIG}").read_text())["network"]',
                'del config["_target_"]',
                f"network = {name}(**config)",
                "network.load_state_dict(tensors)",
                "network.eval()",
            ]
        )


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
    reading = f'import torch\n\ntensors = torch.load("{name}", weights_only=True)'

    def content(self, tensors: dict[str, Tensor]) -> bytes:
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        return buffer.getvalue()


def network(trained: Trained) -> torch.nn.Module:
    """The denoiser's network, which alone has weights."""
    return trained.denoiser.network


def network_config(trained: Trained) -> dict[str, Any]:
    """`_target_` and all arguments of the network's constructor, also those that the other parts define."""
    own = {key: value for key, value in trained.config["network"].items() if key != "_partial_"}
    channels, size, _ = trained.data.shape
    outputs = channels * (trained.denoiser.prediction.heads + trained.denoiser.variance.channels)
    given = {"in_channels": channels, "out_channels": outputs, "image_size": size}
    labels = trained.data.conditions.num_labels
    return json.loads(json.dumps(own | given | ({} if labels is None else {"num_classes": labels})))
