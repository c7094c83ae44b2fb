"""What `diffusion-lab analyze` leaves: `analyses/NAME` in a run folder, or in the folder that holds several runs.

data.npz      the arrays
figure.svg    and figure.png, the same picture
facts.json    sentence, facts and protocol; written last, so its presence means that the analysis is complete
pieces-HASH/  until then: the finished pieces of a computation with this protocol
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from diffusion_lab.files import read_object
from diffusion_lab.files_inside import read_inside

ANALYSES, DATA, FACTS, PIECES = "analyses", "data.npz", "facts.json", "pieces-"
FIGURE, PICTURE = "figure.svg", "figure.png"
LARGEST = 64 * 2**20  # bytes of a figure on a page


class StoredAnalysis(NamedTuple):
    """A complete analysis.

    Attributes:
        folder: `.../analyses/NAME`.
        sentence: what its numbers mean.
        models: for each model one text with the name of its run, its step and its weights.
        figure: the bytes of its SVG file.
    """

    folder: Path
    sentence: str
    models: list[str]
    figure: bytes

    @property
    def name(self) -> str:
        return self.folder.name


def read_analyses(place: Path, top: Path | None = None) -> list[StoredAnalysis]:
    """The complete analyses in a run folder or a folder of runs, by name; damaged ones are left out. No link is
    followed below `top`, by default `place`."""
    found = sorted((place / ANALYSES).glob(f"*/{FACTS}"))
    analyses = [_read(path.parent, place if top is None else top) for path in found]
    return [one for one in analyses if one is not None]


def _read(folder: Path, top: Path) -> StoredAnalysis | None:
    content = read_object(folder / FACTS, top) or {}
    sentence, protocol = content.get("sentence"), content.get("protocol")
    try:
        figure = read_inside(folder / FIGURE, top, LARGEST)
    except OSError:
        return None
    if not isinstance(sentence, str) or not isinstance(protocol, dict):
        return None
    models = protocol.get("models")
    return StoredAnalysis(
        folder, sentence, [_words(model) for model in models] if isinstance(models, list) else [], figure
    )


def _words(model: Any) -> str:
    entries = model if isinstance(model, dict) else {}
    return f"{entries.get('run')}, step {entries.get('step')}, weights {entries.get('weights')}"
