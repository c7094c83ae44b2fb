"""Runs an analysis: computes it, draws its figure and writes its folder (`diffusion_lab.runs.analyses`).

The same analysis of the same models writes the same bytes. A complete analysis is not computed again; only its figure
and sentence are updated.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffusion_lab import plotting
from diffusion_lab.analyses.arrays import pack
from diffusion_lab.analyses.base import Analysis, Result
from diffusion_lab.analyses.work import Work
from diffusion_lab.files import read_object, write_json, write_whole
from diffusion_lab.inside import read_inside
from diffusion_lab.npz import unpack
from diffusion_lab.runs.analyses import DATA, FACTS, FIGURE, PICTURE, PIECES
from diffusion_lab.streams import Streams

if TYPE_CHECKING:
    import torch

    from diffusion_lab.training import Trained


def perform(
    analysis: Analysis,
    trained: Sequence[Trained],
    folder: Path,
    settings: Mapping[str, Any],
    seed: int = 0,
    device: torch.device | str = "cpu",
    show: bool = False,
) -> str:
    """Compute what is missing, write the folder, and return the sentence.

    Args:
        analysis: the analysis; its `check` has passed.
        trained: the models, on `device`.
        folder: folder of the results, with the name of the analysis.
        settings: plain values on which the result depends, besides the models and the seed.
        seed: seed of the analysis's random numbers.
        device: device of the computation.
        show: whether to show the progress.
    """
    models = [model.identity() for model in trained]
    protocol = _plain({"settings": dict(settings), "seed": seed, "models": models})
    result = _complete(folder, protocol)
    pieces = folder / f"{PIECES}{_digest(json.dumps(protocol).encode())[:8]}"
    if result is None:
        computed = analysis.run(trained, Work(pieces, Streams(seed), device, show))
        result = Result(computed.data, _plain(computed.facts))
    sentence = analysis.sentence(result)
    with plotting.style():
        figure = analysis.figure(result)
        vector, raster = plotting.svg(figure), plotting.png(figure)
    data = pack(result.data)
    content = {"analysis": folder.name, "sentence": sentence, "facts": result.facts, "protocol": protocol}
    (folder / FACTS).unlink(missing_ok=True)
    write_whole(folder / DATA, data)
    write_whole(folder / FIGURE, vector)
    write_whole(folder / PICTURE, raster)
    write_json(folder / FACTS, content | {"data": _digest(data)})
    shutil.rmtree(pieces, ignore_errors=True)
    return sentence


def _complete(folder: Path, protocol: dict[str, Any]) -> Result | None:
    """The result in the folder, if it has this protocol and is undamaged; else None."""
    content = read_object(folder / FACTS) or {}
    if content.get("protocol") != protocol or not isinstance(content.get("facts"), dict):
        return None
    try:
        data = read_inside(folder / DATA, largest=None)
        return Result(unpack(data), content["facts"]) if content.get("data") == _digest(data) else None
    except (OSError, ValueError):
        return None


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """The values as read back from JSON: tuples are lists, keys are strings."""
    return json.loads(json.dumps(values))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
