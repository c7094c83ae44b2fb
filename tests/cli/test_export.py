"""`diffusion-lab export`: what its files give to those who follow the model card, and what it refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from diffusion_lab import load_run
from diffusion_lab.cli.main import main
from diffusion_lab.diffusion import (
    Denoiser,
    Epsilon,
    LearnedRange,
    NoiseSchedule,
    PathPosition,
    Plain,
    Velocity,
    linear,
    rectified_flow,
)
from diffusion_lab.export import DiffusersFolder, Safetensors
from diffusion_lab.export.diffusers_folder import _calls, _clip, _left_out, _steps
from diffusion_lab.export.tensors import own_tensors
from diffusion_lab.networks import UNet, UViT
from diffusion_lab.solvers import DDIM, Autoguided, Euler, Guided, Trailing
from diffusion_lab.training import TrainedDiffusion
from tests.harness import Child

SHORT = """max_steps=40 batch_size=16 optimizer.lr=0.002 snapshot_every=0 checkpoint_every=40 threads=1
    metrics.num_samples=128 solver.steps=2 dataset.val_images=32 trainer.accelerator=cpu
    callbacks.ema.decays=[0.9]""".split()
KINDS = {
    "unet": ["network.base_channels=8"],
    "unet-eps": ["network.base_channels=8", "base=ddpm", "solver.clip=false"],
    "dit": ["network=dit_tiny", "dataset.conditional=true", "dataset.label_dropout=0.1"],
    "diffusers": ["network=diffusers_dit", "network.arguments.num_layers=1", "schedule.num_timesteps=50"],
    "meanflow": ["method=meanflow", "network.base_channels=8"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each kind, trained."""
    folder = tmp_path_factory.mktemp("runs")
    for name, words in KINDS.items():
        run(["train", f"hydra.run.dir={folder / name}", *words, *SHORT], folder / f"{name}.log")
    return folder


def run(words: list[str], log: Path) -> None:
    """A command that must succeed, in a process of its own."""

    def work() -> None:
        os.chdir(log.parent)
        raise SystemExit(main(words))

    Child(work, log).succeed()


def exported(made: Path, name: str, form: str, folder: Path) -> tuple[TrainedDiffusion, str]:
    """The trained model, and the Python of the card of its export in the folder."""
    run(["export", f"run={made / name}", f"format={form}", f"outdir={folder}"], folder.parent / "export.log")
    card = (folder / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.S)
    trained = load_run(made / name)
    assert isinstance(trained, TrainedDiffusion)
    return trained, code


def followed(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, x: Tensor | None = None) -> dict[str, Any]:
    """The names after the card's Python was run in the folder, with given latents."""
    monkeypatch.chdir(folder)
    if x is not None:
        monkeypatch.setattr(torch, "randn", lambda *_, **__: x.clone())
    names: dict[str, Any] = {}
    exec(code.replace("use_clipped", 'output_type="np", use_clipped') if "pipeline(" in code else code, names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name != "meanflow"])  # which the library does not have
def test_the_library_gives_the_same_images_from_the_same_latents(
    name: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, code = exported(made, name, "diffusers", tmp_path / "out")
    x = torch.randn(16, *trained.data.shape, generator=torch.Generator().manual_seed(3))
    cond = {"label": torch.arange(16) % 10} if name == "dit" else {}
    clip = name != "unet-eps"
    with torch.no_grad():
        steps = _steps(trained.denoiser.num_timesteps)  # not 20 of 50
        ours = Euler(steps, Trailing(), clip=clip).solve(trained.denoiser, x, lambda k, x: x, range, cond)
    images = torch.as_tensor(followed(code, tmp_path / "out", monkeypatch, x)["images"])
    if images.shape[-1] != x.shape[-1]:
        images = images.movedim(-1, 1)
    ours = ours / 2 + 0.5
    if "pipeline" in code:
        ours = ours.clamp(0, 1)
    assert images.shape == ours.shape and (images - ours).abs().max() < 1e-4
    assert ours.std() > 0.05  # not one grey
    assert (images - images.roll(1, 0)).abs().max() > 0.1  # of other latents


@pytest.mark.slow
def test_ddim_visits_what_the_librarys_leading_spacing_does(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, code = exported(made, "unet", "diffusers", tmp_path / "out")
    x = torch.randn(16, *trained.data.shape, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        ours = DDIM("ddim20").solve(trained.denoiser, x, lambda k, x: x, range, {})
    code = code.replace("images =", 'pipeline.scheduler.register_to_config(timestep_spacing="leading")\nimages =')
    images = torch.as_tensor(followed(code, tmp_path / "out", monkeypatch, x)["images"]).movedim(-1, 1)
    assert (images - (ours / 2 + 0.5).clamp(0, 1)).abs().max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("form", ["safetensors", "torch"])
def test_a_file_of_tensors_is_the_network_to_the_bit(
    form: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, code = exported(made, "dit", form, tmp_path / "out")
    network = followed(code, tmp_path / "out", monkeypatch)["network"]
    own = trained.denoiser.network.state_dict()
    assert own.keys() == network.state_dict().keys()
    assert all(torch.equal(own[key], value) for key, value in network.state_dict().items())
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    exported(made, "dit", form, tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == files  # and the same again
    (weights,) = (path for path in (tmp_path / "out").iterdir() if path.name.startswith("model."))
    more = ["train", *KINDS["dit"], *SHORT, f"init_from={weights}", "max_steps=1", f"hydra.run.dir={tmp_path / 'run'}"]
    run(more, tmp_path / "train.log")


@pytest.mark.slow
def test_a_network_with_a_second_time_is_read_with_it(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, code = exported(made, "meanflow", "safetensors", tmp_path / "out")
    network, own = followed(code, tmp_path / "out", monkeypatch)["network"], trained.denoiser.network
    x, t, interval = torch.randn(2, 1, 8, 8), torch.tensor([0.9, 0.4]), torch.tensor([0.9, 0.1])
    with torch.no_grad():
        out = network(x, t, interval=interval)
        assert torch.allclose(out, own(x, t, interval=interval), atol=1e-6) and not torch.equal(out, network(x, t))
    assert all(torch.equal(one, network.state_dict()[key]) for key, one in own.state_dict().items())


@pytest.mark.slow
def test_a_card_of_raw_weights_has_no_numbers_of_the_average(made: Path, tmp_path: Path) -> None:
    run(["export", f"run={made / 'dit'}", "weights=raw", f"outdir={tmp_path / 'out'}"], tmp_path / "export.log")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "No metric was measured with these weights." in card and "fd128_digits" not in card


@pytest.mark.slow
def test_the_card_says_what_the_run_says(made: Path, tmp_path: Path) -> None:
    exported(made, "dit", "safetensors", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    for line in (
        "| data | `digits` |",
        "| network | `dit_tiny, 328,",
        "| prediction | `v` |",
        "| steps | `40 of 16 images` |",
        "| weights | `average 0.9` |",
        "| `fd128_digits` |",
        "samples 128, solver ddim-2-eta0, ema_decay 0.9",
        "diffusion-lab train network=dit_tiny",
    ):
        assert line in card, line


def test_what_the_library_cannot_express_is_refused_by_name() -> None:
    def model(network=None, schedule=None, prediction=None, variance=None, time=None) -> Any:
        own = UNet(1, 1, 8, 8, (1, 2), 1, ()) if network is None else network
        return SimpleNamespace(
            denoiser=Denoiser(own, schedule or linear(), prediction or Epsilon(), variance, time=time)
        )

    DiffusersFolder().check(model())
    for wrong, says in (
        ({"network": UViT(1, 1, 8, 2, dim=16, depth=2, num_heads=2)}, "network must be one that diffusers has"),
        ({"schedule": rectified_flow(), "prediction": Velocity()}, "schedule must be variance preserving"),
        ({"prediction": Velocity()}, "prediction must be eps, x0 or v"),
        ({"variance": LearnedRange()}, "variance must be fixed"),
        ({"time": PathPosition()}, "time must be the index"),
    ):
        with pytest.raises(ValueError, match=f"{says}.*use format=safetensors"):
            DiffusersFolder().check(model(**wrong))


def test_the_card_says_that_its_code_leaves_out_a_second_network() -> None:
    """The code of a run with solver=autoguided was that of an unguided one, without a word."""
    weak = Denoiser(UNet(1, 1, 8, 8, (1, 2), 1, ()), linear(), Epsilon())
    for solver, said in (
        (Autoguided(DDIM(), weak), "are made with Autoguided; these are not"),
        (Guided(Autoguided(DDIM(), weak)), "are made with Autoguided; these are not"),
        (Guided(DDIM()), ""),
        (DDIM(), ""),
    ):
        lines = _left_out(SimpleNamespace(own_solver=lambda solver=solver: solver))
        assert ("".join(lines).find(said) >= 0) and bool(lines) == bool(said)


@pytest.mark.parametrize(
    ("timesteps", "steps"),
    [(1000, 20), (100, 20), (250, 10), (130, 13), (50, 10), (30, 15), (12, 12), (101, 101), (22, 11)],
)
def test_the_steps_of_the_card_divide_the_timesteps(timesteps: int, steps: int) -> None:
    assert _steps(timesteps) == steps and timesteps % steps == 0


def test_the_card_finds_guidance_and_clipping_in_solvers_around_one_another() -> None:
    weak = Denoiser(UNet(1, 1, 8, 8, (1, 2), 1, ()), linear(), Epsilon())
    data = SimpleNamespace(conditions=SimpleNamespace(null_label=10))
    for solver in (Autoguided(Guided(DDIM(clip=False), 2.5), weak), Guided(Autoguided(DDIM(clip=False), weak), 2.5)):
        trained = SimpleNamespace(own_solver=lambda solver=solver: solver, data=data)
        assert not _clip(trained) and "out = without + 2.5 * (with_label - without)" in "\n".join(_calls(trained, True))
    plain = SimpleNamespace(own_solver=lambda: Autoguided(DDIM(), weak), data=data)
    assert _clip(plain) and _calls(plain, True) == ["out = model(x, t.expand(16), class_labels=labels).sample"]


def test_tied_weights_are_written_under_both_names(tmp_path: Path) -> None:
    tied = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2, bias=False), "b": torch.nn.Linear(2, 2, bias=False)})
    tied["b"].weight = tied["a"].weight
    denoiser = SimpleNamespace(network=tied)
    tensors = own_tensors(denoiser.network)
    (tmp_path / "model.safetensors").write_bytes(Safetensors().content(tensors))
    read = load_file(tmp_path / "model.safetensors")
    assert set(read) == {"a.weight", "b.weight"} and torch.equal(read["a.weight"], read["b.weight"])


def test_a_class_that_the_library_does_not_have_is_refused_however_little_it_overrides() -> None:
    class Shown(Plain):
        def input_scale(self, schedule: NoiseSchedule) -> Any:
            return 2 * torch.ones_like(schedule.betas)

    class Twice(UNet):
        def forward(self, *inputs: Any, **cond: Any) -> Tensor:
            return 2 * super().forward(*inputs, **cond)

    class Shifted(NoiseSchedule):
        def perturb(self, x0: Tensor, eps: Tensor, t: Tensor) -> Tensor:
            return super().perturb(x0, eps, t) + 1

    class Self(Denoiser):
        pass

    unet, twice = (kind(1, 1, 8, 8, (1, 2), 1, ()) for kind in (UNet, Twice))
    for made, says in (
        (Self(unet, linear(), Epsilon()), "model must be diffusion, with no Denoiser of its own"),
        (Denoiser(unet, Shifted(linear().betas), Epsilon()), "schedule must be variance preserving"),
        (Denoiser(unet, linear(), Epsilon(), preconditioning=Shown()), "preconditioning must be none"),
        (Denoiser(twice, linear(), Epsilon()), "Twice must override for_diffusers with forward"),
    ):
        with pytest.raises(ValueError, match=says):
            DiffusersFolder().check(SimpleNamespace(denoiser=made))  # type: ignore[arg-type]


def test_settings_are_checked_before_anything_is_written(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, says in (
        ([], "run=null must be a run folder"),
        (["run=nowhere"], "run=nowhere must be"),
        (["run=nowhere", "format=onnx"], "format=onnx must be one of diffusers, safetensors, torch"),
        (["run=nowhere", "outdir=5"], "outdir=5 must be text"),
    ):
        assert main(["export", *words]) == 2
        assert says in capsys.readouterr().err
    assert list(in_folder.iterdir()) == []


OWN = """
from diffusion_lab.export import Form


class Shapes(Form):
    \"\"\"The shapes of the tensors, as text.\"\"\"

    def write(self, trained, folder):
        shapes = [f"{key} {tuple(value.shape)}" for key, value in trained.denoiser.network.state_dict().items()]
        (folder / "shapes.txt").write_text("\\n".join(shapes))

    def usage(self, trained):
        return 'print(open("shapes.txt").read())'
"""


@pytest.mark.slow
def test_a_format_of_ones_own_is_a_class_and_a_yaml(made: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "shapes.py").write_text(OWN)
    (tmp_path / "my_conf" / "format").mkdir(parents=True)
    (tmp_path / "my_conf" / "format" / "shapes.yaml").write_text("_target_: shapes.Shapes\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    more = ["--config-dir", "./my_conf", "format=shapes", "outdir=out"]
    run(["export", f"run={made / 'unet'}", *more], tmp_path / "export.log")
    assert "conv_in.weight (8, 1, 3, 3)" in (tmp_path / "out" / "shapes.txt").read_text()
    assert 'print(open("shapes.txt")' in (tmp_path / "out" / "README.md").read_text()
