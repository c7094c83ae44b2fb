"""The contract of analyses."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from diffusion_lab.analyses import Analysis, perform
from diffusion_lab.analyses.base import pack
from diffusion_lab.analyses.perform import computed
from diffusion_lab.data import GaussianMixture, ImageDataModule
from diffusion_lab.diffusion import Denoiser, Epsilon, FixedLarge, bound_weights, linear
from diffusion_lab.runs.analyses import ANALYSES, DATA, FACTS, FIGURE, PICTURE, read_analyses
from diffusion_lab.timesteps.grid import default_grid, masses
from diffusion_lab.training import TrainedDiffusion

Bytes = dict[str, bytes]


class Stopped(BaseException):
    """Raised by the check to interrupt an analysis."""


def check_analysis(make: Callable[[], Analysis], trained: Sequence[TrainedDiffusion] | None = None) -> None:
    """The rules of `diffusion_lab.analyses`: files, a sentence, and equal bytes also after an interruption.

    Args:
        make: returns a new analysis; two calls must return equal ones.
        trained: the models; None: `tiny_update()`.

    Raises:
        AssertionError: a rule is broken; the text says which.
    """
    models = list(tiny_update() if trained is None else trained)
    name = type(make()).__name__
    make().check(models)
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        with _counted(models) as calls:
            first = _files(make(), models, top / "first" / ANALYSES / name)
        _check_files(first, top / "first", name)
        assert not any(m.denoiser.training for m in models), f"{name}.run left a denoiser in training mode"
        again = _files(make(), models, top / "first" / ANALYSES / name)
        assert again == first, f"{name} gives other bytes from its own data.npz: {_differing(first, again)}"
        # The figure is one of the data alone, so that it is not drawn again for what follows.
        numbers = _numbers(make(), models, top / "first" / ANALYSES / name)
        torch.manual_seed(1)
        repeated = _numbers(make(), models, top / "second" / ANALYSES / name)
        assert repeated == numbers, f"{name} gives other bytes when repeated: {_differing(numbers, repeated)}"
        if len(calls) > 1:
            _check_resume(make, models, numbers, len(calls), top / "third" / ANALYSES / name)


def _check_files(files: Bytes, place: Path, name: str) -> None:
    needed = {DATA, FIGURE, PICTURE, FACTS}
    assert set(files) == needed, f"{name} must leave {sorted(needed)}, and left {sorted(files)}"
    (one,) = read_analyses(place)
    assert one.sentence.strip(), f"{name}.sentence is empty"
    assert "\n" not in one.sentence and one.sentence.endswith("."), f"{name}.sentence must be one sentence in one line"


def _check_resume(
    make: Callable[[], Analysis], models: list[TrainedDiffusion], numbers: Bytes, calls: int, folder: Path
) -> None:
    """Interrupt the analysis, and call it again."""
    name = type(make()).__name__
    try:
        with _counted(models, stop=calls // 2 + 1):
            _numbers(make(), models, folder)
    except Stopped:
        pass
    for model in models:
        model.denoiser.eval()
    torch.manual_seed(2)
    with _counted(models) as rest:
        resumed = _numbers(make(), models, folder)
    assert resumed == numbers, f"{name} gives other bytes when it was stopped: {_differing(numbers, resumed)}"
    assert len(rest) < calls, f"{name} computes everything again after it was stopped; give `work.map` smaller tasks"


def _files(analysis: Analysis, models: Sequence[TrainedDiffusion], folder: Path) -> Bytes:
    perform(analysis, models, folder, {})
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _numbers(analysis: Analysis, models: Sequence[TrainedDiffusion], folder: Path) -> Bytes:
    """What data.npz and facts.json are made of."""
    result, _ = computed(analysis, models, folder, {})
    facts = json.dumps([result.facts, analysis.sentence(result)], sort_keys=True)
    return {DATA: pack(result.data), FACTS: facts.encode()}


def _differing(a: Bytes, b: Bytes) -> str:
    return ", ".join(sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name)))


@contextmanager
def _counted(models: Sequence[TrainedDiffusion], stop: int = 0) -> Iterator[list[int]]:
    """The calls of the networks inside, one entry each; the one with number `stop` raises `Stopped`."""
    calls: list[int] = []

    def count(*given: object) -> None:
        calls.append(len(calls) + 1)
        if calls[-1] == stop:
            raise Stopped

    hooks = [model.denoiser.network.register_forward_pre_hook(count) for model in models]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


class TinyNetwork(nn.Module):
    """Two convolutions with dropout between them, scaled by a function of t."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.outer(self.dropout(self.inner(x).tanh())) * (1 + t / 1000).view(-1, 1, 1, 1)


def tiny_update() -> list[TrainedDiffusion]:
    """A network of 77 parameters and the same with one percent smaller weights, on Gaussian images of 4x4 pixels.

    Both have the state of a learned Beta sampler.
    """
    data = ImageDataModule(
        GaussianMixture([0.5], [0.25], image_size=4, num_images=64, num_test_images=128), batch_size=8
    )
    before = TinyNetwork()
    with torch.no_grad():
        for parameter in before.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).view_as(parameter))
    after = copy.deepcopy(before)
    with torch.no_grad():
        for parameter in after.parameters():
            parameter *= 0.99
    made = []
    for step, network in enumerate((before, after), start=1):
        denoiser = Denoiser(network, linear(1000), Epsilon(), FixedLarge()).eval()
        sampler = learned_beta_state(denoiser, 6 * step)
        made.append(TrainedDiffusion(Path("tiny"), {}, "0" * 64, denoiser, data, step, None, sampler))
    return made


def learned_beta_state(denoiser: Denoiser, filled: int, queue: int = 20) -> dict[str, Tensor]:
    """The state of a learned Beta sampler that has pushed `filled` rows of standard normal changes."""
    weights = bound_weights(denoiser.schedule, denoiser.prediction, denoiser.variance)
    grid = default_grid(weights)
    rows = torch.randn(filled, len(grid), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    changes = torch.zeros(queue, len(grid), dtype=torch.float64)
    for j, row in enumerate(rows):
        changes[j % queue] = row
    totals = changes @ masses(weights, grid)
    return {"changes": changes, "totals": totals, "filled": torch.tensor(filled), "selected": torch.arange(3)}
