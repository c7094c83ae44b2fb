"""REPA against closed forms, what of it is trained and saved, and what is refused before step 1."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from diffusion_lab.auxiliary import REPA
from diffusion_lab.auxiliary.base import places
from diffusion_lab.cli.main import main
from diffusion_lab.data import to_uint8
from diffusion_lab.diffusion import Step
from diffusion_lab.metrics import ClassifierFeatures
from diffusion_lab.streams import Position, Streams
from tests.auxiliary.small import Net, module
from tests.harness import configuration

ENCODER = ClassifierFeatures("digits")
X0 = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 2 - 1
MAPS: Any = ENCODER.maps(to_uint8(X0))


def rows(features: Tensor, encoder: Any = ENCODER, projector: nn.Module | None = None) -> Tensor:
    """The rows for what the layer returned, by default with the identity as projector."""
    loss: Any = REPA(encoder, ["first"])
    loss.projector = projector or nn.Identity()
    t = torch.zeros(len(X0), dtype=torch.int64)
    return loss.rows(Step(module().denoiser, X0, X0, t, {}, X0, X0, Position(0), Streams(0), {"first": features}))


def test_rows_are_minus_the_mean_cosine_over_the_places() -> None:
    assert MAPS.shape == (3, 64, 2, 2)
    assert torch.allclose(rows(MAPS), -torch.ones(3)) and torch.allclose(rows(-7 * MAPS), torch.ones(3))
    z = torch.randn(MAPS.shape, generator=torch.Generator().manual_seed(1))
    cosines = [[a @ b / a.norm() / b.norm() for a, b in zip(*pair, strict=True)] for pair in _by_place(z, MAPS)]
    assert torch.allclose(rows(z), -torch.tensor(cosines).mean(1), atol=1e-6)


def _by_place(*maps: Tensor) -> Any:
    return zip(*(one.flatten(2).transpose(1, 2) for one in maps), strict=True)


def test_tokens_are_the_map_and_those_in_front_are_left_out() -> None:
    z = torch.randn(3, 32, 4, 4, generator=torch.Generator().manual_seed(1))
    tokens = z.flatten(2).transpose(1, 2)
    for front in (0, 1, 2):
        assert torch.equal(places(torch.cat([torch.full((3, front, 32), 9.0), tokens], 1)), z)
    with pytest.raises(ValueError, match=r"layers must name a layer that returns \(b,D,h,w\)"):
        places(z[None])


def test_the_encoder_is_resized_to_the_layer_and_one_vector_is_compared_with_the_mean() -> None:
    finer = MAPS.repeat_interleave(2, 2).repeat_interleave(2, 3)
    constant = MAPS.mean((2, 3), keepdim=True).expand(3, 64, 5, 5)
    assert (rows(finer) < -0.9).all() and torch.allclose(rows(constant[..., 0, 0]), -torch.ones(3))

    class Pooled(ClassifierFeatures):
        def maps(self, images: Tensor) -> None:
            return None

    features = ENCODER(to_uint8(X0)).features
    apart = features[..., None, None] + torch.tensor([[1.0, -1.0]])  # of which the mean is the vector
    assert (
        torch.allclose(rows(apart, Pooled("digits")), -torch.ones(3)) and (rows(-apart, Pooled("digits")) > 0.9).all()
    )


def built(seed: int = 0) -> Any:
    of = module(auxiliary={"repa": REPA(ENCODER, ["first"], hidden=8)})
    of.auxiliary.build(of.network, X0[:1], {}, Streams(seed))
    return of


def test_the_projector_is_trained_and_the_encoder_is_neither_trained_nor_saved() -> None:
    before = torch.get_rng_state()
    of, state = built(), built().state_dict()
    added = {name: value for name, value in state.items() if name.startswith("auxiliary.")}
    widths = {name: tuple(value.shape) for name, value in added.items() if "weight" in name}
    assert list(widths.values()) == [(8, 4), (8, 8), (64, 8)] and len(added) == 6
    assert all(torch.equal(value, of.state_dict()[name]) for name, value in added.items())
    assert not torch.equal(built(1).state_dict()[name := next(iter(widths))], added[name])
    torch.set_rng_state(before)
    module(auxiliary={"repa": REPA(ENCODER, ["first"], hidden=8)})
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    built()
    assert torch.equal(torch.get_rng_state(), after)  # the run's other draws are what they are without
    of.training_step({"image": X0}, 0)["loss"].backward()
    plain = module()
    plain.training_step({"image": X0}, 0)["loss"].backward()
    gradients = {name: parameter.grad for name, parameter in of.named_parameters()}
    assert all(gradients[name].norm() > 0 for name in added)
    assert not torch.equal(gradients["denoiser.network.first.0.weight"], plain.network.first[0].weight.grad)
    assert not any(parameter.requires_grad for parameter in ENCODER._network[0].parameters())


def test_without_a_projector_or_with_more_layers_it_is_refused() -> None:
    of: Any = module(network=Net(), auxiliary={"repa": REPA(ENCODER, ["first"])})
    with pytest.raises(ValueError, match=r"the projector must be built first; call module.auxiliary.build"):
        of.training_step({"image": X0}, 0)
    for layers in ("first", [], ["first", "second"]):
        with pytest.raises(ValueError, match="must be a list of one name of a layer"):
            REPA(ENCODER, layers)


DINO = "auxiliary.repa.encoder={_target_: diffusion_lab.metrics.DINOv2Features, weights: none.pth}"
SMALLER = "auxiliary.repa.encoder={_target_: diffusion_lab.metrics.ClassifierFeatures, weights: fashion_mnist}"


OF_NO_DATA = "auxiliary.repa.encoder={_target_: diffusion_lab.metrics.OwnFeatures}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([OF_NO_DATA], "_target_=OwnFeatures must be the extractor of the data set from which it is trained"),
        (["dataset=gaussian", "metrics=none", "solver.clip=false"], "dataset.features=null must be an extractor of"),
        ([DINO], "auxiliary.repa.encoder.weights=none.pth: there is no file"),
        ([SMALLER], "auxiliary.repa.encoder=fashion_mnist must take the images of this run, 1x8x8, and takes 1x28x28"),
        (["auxiliary.repa.layers=[blocks.1]"], "auxiliary.repa.layers=blocks.1 must be a module inside UNet"),
    ],
)
def test_wrong_settings_are_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], in_folder: Any
) -> None:
    code = main(["train", "network.base_channels=8", "max_steps=1", "trainer=cpu", "auxiliary=repa", *words])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and said in line, line


def test_weights_that_have_changed_are_refused() -> None:
    REPA(ENCODER, ["first"], checksum=ENCODER.weights_sha256).check((1, 8, 8))
    with pytest.raises(ValueError, match="checksum=abc must be that of the encoder's weights, .*, which have changed"):
        REPA(ENCODER, ["first"], checksum="abc").check((1, 8, 8))


def test_the_checksum_of_a_file_of_weights_is_recorded(in_folder: Any) -> None:
    weights = in_folder / "w.pth"
    weights.write_bytes(b"abc")
    node = DINO.replace("none.pth", str(weights))
    found = configuration(in_folder / "run", "auxiliary=repa", node).auxiliary.repa.checksum
    assert found == sha256(b"abc").hexdigest()
    assert configuration(in_folder / "run", "auxiliary=repa").auxiliary.repa.checksum is None
