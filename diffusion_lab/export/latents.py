"""What decodes the samples of a model of latents: a file beside the model's, and the Python that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from diffusion_lab.files import write_json

DECODER = "decoder.json"


def write_decoder(folder: Path, decoding: Mapping[str, Any] | None) -> None:
    """`ImageSource.decoding` as decoder.json; a model of images has none."""
    if decoding is not None:
        write_json(folder / DECODER, dict(decoding))


def decoding_code(decoding: Mapping[str, Any]) -> str:
    """Python that makes images in [0, 1] of x (n,c,h,w), samples of the model, in the folder of the export."""
    kind = decoding["autoencoder"]["class"]
    return "\n".join(
        [
            "import json",
            "from pathlib import Path",
            "",
            "import torch",
            f"from diffusers import {kind}",
            "",
            f'decoder = json.loads(Path("{DECODER}").read_text())',
            'mean, std = (torch.tensor(decoder[key]).view(-1, 1, 1) for key in ("mean", "std"))',
            'place, subfolder = (decoder["autoencoder"][key] for key in ("place", "subfolder"))',
            f"autoencoder = {kind}.from_pretrained(place, subfolder=subfolder).eval()",
            "with torch.no_grad():",
            "    images = autoencoder.decode(std * x + mean).sample / 2 + 0.5  # in [0, 1]",
        ]
    )


def decoding_facts(decoding: Mapping[str, Any]) -> dict[str, str]:
    """Rows of the model card."""
    own = decoding["autoencoder"]
    place = "/".join(filter(None, (own["place"], own["subfolder"])))
    numbers = {key: ", ".join(f"{value:.6g}" for value in decoding[key]) for key in ("mean", "std")}
    return {
        "autoencoder": f"{own['class']} {place}",
        "SHA-256 of its weights": own["weights_sha256"],
        "mean of the latents": numbers["mean"],
        "std of the latents": numbers["std"],
    }
