"""Networks of diffusers: the library's own numbers, labels, times, classes, arguments, and the folder's config.json."""

import builtins
import importlib.util
import json
from operator import attrgetter

import pytest
import torch

from diffusion_lab.networks import Diffusers
from diffusion_lab.saved_config import architecture_or_fault, read_architecture
from tests.networks.configured import CONF, configured, parameters
from tests.networks.filling import numbers

diffusers = pytest.importorskip("diffusers")

UNET = {
    "block_out_channels": [8, 16],
    "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
    "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
    "layers_per_block": 1,
    "attention_head_dim": 8,
    "norm_num_groups": 4,
}
DIT = {"patch_size": 2, "num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 8}
KINDS = [("UNet2DModel", UNET), ("DiTTransformer2DModel", DIT)]
X = numbers((3, 1, 8, 8), 90).float()
LABEL = torch.tensor([0, 4, 2])


def network(kind="UNet2DModel", arguments=UNET, channels=1, outputs=2, size=8, **more):
    torch.manual_seed(0)
    return Diffusers(channels, outputs, size, kind, arguments, **more)


@pytest.mark.parametrize("t", [torch.tensor([0, 30, 999]), torch.tensor([0.25, 0.5, 1.0])], ids=["int", "float"])
def test_a_unet_answers_as_the_library_does(t):
    torch.manual_seed(0)
    theirs = diffusers.UNet2DModel(8, 1, 2, num_class_embeds=5, **UNET)
    ours = network(num_classes=5)
    wanted = theirs(X, t, class_labels=LABEL).sample
    assert torch.equal(ours(X, t, label=LABEL), wanted)
    assert not torch.allclose(ours(X, t + 1, label=LABEL), wanted)  # negative controls
    assert not torch.allclose(ours(X, t, label=LABEL.roll(1)), wanted)


@pytest.mark.parametrize("t", [torch.tensor([0, 30, 999]), torch.tensor([0.25, 0.5, 1.0])], ids=["int", "float"])
def test_a_transformer_answers_as_the_library_does(t):
    torch.manual_seed(0)
    theirs = diffusers.DiTTransformer2DModel(in_channels=1, out_channels=2, sample_size=8, num_embeds_ada_norm=4, **DIT)
    ours = network("DiTTransformer2DModel", DIT, num_classes=5)
    wanted = theirs.eval()(X, t, class_labels=LABEL).sample
    assert torch.equal(ours.eval()(X, t, label=LABEL), wanted)
    assert not torch.allclose(ours(X, t, label=LABEL.roll(1)), wanted)  # negative control


def test_the_transformers_own_label_dropout_is_off():
    labels = torch.arange(5).repeat(40)
    x, t = X[:1].expand(200, 1, 8, 8), torch.zeros(200, dtype=torch.int64)
    ours = network("DiTTransformer2DModel", DIT, num_classes=5).train()
    assert torch.equal(ours(x, t, label=labels), ours.eval()(x, t, label=labels))
    theirs = diffusers.DiTTransformer2DModel(in_channels=1, out_channels=2, sample_size=8, num_embeds_ada_norm=4, **DIT)
    drawn = theirs.train()(x, t, class_labels=labels).sample
    assert not torch.allclose(drawn, theirs.eval()(x, t, class_labels=labels).sample)  # negative control


@pytest.mark.parametrize(("kind", "arguments"), KINDS)
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_the_table_has_a_row_for_each_label(kind, arguments, classes):
    """The null label is the last of them; one more is out of range."""
    ours = network(kind, arguments, num_classes=classes)
    tables = [m for m in ours.modules() if isinstance(m, torch.nn.Embedding)]
    assert tables and {table.num_embeddings for table in tables} == {classes}
    with pytest.raises(IndexError):
        ours(X[:1], torch.tensor([0]), label=torch.tensor([classes]))


@pytest.mark.parametrize(("kind", "arguments"), KINDS)
def test_labels_and_classes_go_together(kind, arguments):
    t = torch.tensor([0, 1, 2])
    assert network(kind, arguments)(X, t).shape == (3, 2, 8, 8)
    with pytest.raises(ValueError, match="num_classes=None does not go with a batch that has labels"):
        network(kind, arguments)(X, t, label=LABEL)
    with pytest.raises(ValueError, match="num_classes=5 does not go with a batch that has no label"):
        network(kind, arguments, num_classes=5)(X, t)


def test_the_trial_draws_no_random_number_and_needs_no_memory():
    kinds = {"UNet2DModel": UNET, "DiTTransformer2DModel": DIT}
    for kind, arguments in kinds.items():
        with torch.device("meta"):
            torch.manual_seed(3)
            assert all(p.is_meta for p in Diffusers(1, 1, 8, kind, arguments).parameters())
        drawn = torch.rand(1)
        torch.manual_seed(3)
        assert torch.equal(drawn, torch.rand(1))


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("UNet2D", UNET, "^architecture=UNet2D must be a network of diffusers .*; use UNet2DModel"),
        ("AutoencoderKL", {}, "^architecture=AutoencoderKL must be a network of diffusers that needs only"),
        ("UNet2DConditionModel", {}, "^architecture=UNet2DConditionModel must be a network"),  # needs a text
        ("__builtins__", {}, "^architecture=__builtins__ must be a network"),
        ("DDPMPipeline", {}, "^architecture=DDPMPipeline must be a network"),
        (
            "UNet2DModel",
            UNET | {"depth": 3},
            "^arguments.depth=3 must be an argument of diffusers' UNet2DModel; it takes",
        ),
        ("UNet2DModel", UNET | {"out_channels": 3}, "^arguments.out_channels=3 must be left out"),
        (
            "DiTTransformer2DModel",
            DIT | {"num_embeds_ada_norm": 9},
            "^arguments.num_embeds_ada_norm=9 must be left out",
        ),
        (
            "UNet2DModel",
            UNET | {"norm_num_groups": 5},
            "^architecture=UNet2DModel must take images of 1x8x8 and give 2",
        ),
        ("DiTTransformer2DModel", DIT | {"patch_size": 3}, r"and its output is \(1, 2, 6, 6\); change its arguments"),
    ],
)
def test_what_cannot_be_is_one_sentence(kind, arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        network(kind, arguments)
    assert "\n" not in str(error.value)


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    found, imported = importlib.util.find_spec, builtins.__import__
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "diffusers" else found(name))
    monkeypatch.setattr(
        builtins, "__import__", lambda name, *rest: pytest.fail(name) if "diffusers" in name else imported(name, *rest)
    )
    with pytest.raises(FileNotFoundError, match=r"pip install 'diffusion-lab\[diffusers\]'"):
        network()


def test_files_say_their_number_of_parameters():
    for name in ("diffusers", "diffusers_dit"):
        count = parameters(configured(name, 1, 1, 8, "meta"))
        assert f"{count:,} parameters" in " ".join((CONF / f"{name}.yaml").read_text().replace("#", " ").split())


@pytest.mark.parametrize(("kind", "arguments"), KINDS)
def test_a_folder_is_the_network_that_was_saved(kind, arguments, tmp_path):
    saved = network(kind, arguments, num_classes=5)
    attrgetter("save_pretrained")(saved.model)(tmp_path)
    found = read_architecture(tmp_path)
    again = Diffusers(1, 2, 8, num_classes=5, folder=str(tmp_path), found=found)  # its default arguments do not count
    again.load_state_dict(saved.state_dict())
    t = torch.tensor([1, 2, 3])
    assert torch.equal(again.eval()(X, t, label=LABEL), saved.eval()(X, t, label=LABEL))
    wider = Diffusers(3, 6, 16, folder=str(tmp_path), found=found)  # the data's shape, not the folder's
    assert wider(numbers((2, 3, 16, 16), 91).float(), t[:2]).shape == (2, 6, 16, 16)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "has no config.json"),
        ("{", "cannot be read"),
        ("[]", "without _class_name"),
        ('{"_class_name": 3}', "without _class_name"),
        ('{"_class_name": "UNet2DModel", "a": {"_target_": "os.system"}}', "not all numbers, plain texts"),
        ('{"_class_name": "UNet2DModel", "act_fn": "${oc.env:HOME}"}', "not all numbers, plain texts"),
        ('{"_class_name": "UNet2DModel", "a": [1, ["${seed}"]]}', "not all numbers, plain texts"),
        ('{"_class_name": "UNet2DModel", "${seed}": 1}', "not all numbers, plain texts"),
        ('{"_class_name": "${seed}"}', "not all numbers, plain texts"),
    ],
)
def test_a_folder_from_elsewhere_is_data(text, fault, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    found = architecture_or_fault(tmp_path)
    assert isinstance(found, str) and fault in found
    with pytest.raises(
        ValueError, match="^folder=there must be a folder that diffusers' save_pretrained wrote, and it"
    ):
        Diffusers(1, 1, 8, folder="there", found=found)


def test_an_address_is_no_folder():
    for address in ("http://example.org/model", "https://example.org/model", "google/ddpm-cifar10-32"):
        assert architecture_or_fault(address) == "is no folder on this machine"


def test_private_keys_of_the_file_are_left_out(tmp_path):
    content = {"_class_name": "UNet2DModel", "_diffusers_version": "0.1", "_name_or_path": "x", "sample_size": None}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert read_architecture(tmp_path) == {"architecture": "UNet2DModel", "arguments": {"sample_size": None}}
