"""DINOv2 features: the network, what it is given, and how it is refused."""

import io
import math
import re
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import layer_norm, softmax

from diffusion_lab.data import Digits, ImageDataModule
from diffusion_lab.metrics import ClassifierFeatures, DINOv2Features, Evaluation, extract
from diffusion_lab.metrics import dinov2 as module
from diffusion_lab.metrics.reference import describe
from tests.metrics.named import named

WIDTH, DEPTH, HEADS, GRID = 8, 2, 2, 37
TINY = {"width": WIDTH, "depth": DEPTH, "heads": HEADS}


def meta_file(width=WIDTH, depth=DEPTH, grid=GRID):
    """The tensors of a file of Meta, with their names, of a random network."""
    shapes = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, 1 + grid**2, width),
        "mask_token": (1, width),
        "patch_embed.proj.weight": (width, 3, 14, 14),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    block = {"norm1": (width,), "norm2": (width,), "attn.qkv": (3 * width, width), "attn.proj": (width, width)}
    block |= {"mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width)}
    for i in range(depth):
        for name, shape in block.items():
            shapes |= {f"blocks.{i}.{name}.weight": shape, f"blocks.{i}.{name}.bias": shape[:1]}
        shapes |= {f"blocks.{i}.ls1.gamma": (width,), f"blocks.{i}.ls2.gamma": (width,)}
    generator = torch.Generator().manual_seed(3)
    return {key: torch.randn(shape, generator=generator) / 2 for key, shape in shapes.items()}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("dinov2") / "tiny.pth"
    torch.save(meta_file(), path)
    return path


@pytest.fixture(scope="module")
def extractor(weights):
    return DINOv2Features(str(weights), **TINY)


def some(n, size=20, seed=0):
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def cubic(x, a=-0.75):
    """The convolution kernel of Keys (1981)."""
    x = abs(x)
    if x <= 1:
        return ((a + 2) * x - (a + 3)) * x * x + 1
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0


def resampling(old, new, factor):
    """(new, old): the matrix of bicubic interpolation along an axis, with edges repeated."""
    matrix = np.zeros((new, old))
    for i in range(new):
        centre = (i + 0.5) / factor - 0.5
        for j in range(math.floor(centre) - 1, math.floor(centre) + 3):
            matrix[i, min(max(j, 0), old - 1)] += cubic(centre - j)
    return torch.from_numpy(matrix)


def by_hand(tensors, images):
    """The class tokens (n,D), float64, written down from the papers; images resized by Pillow."""
    t = {key: value.double() for key, value in tensors.items()}

    def pillow(image):
        pixels = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((224, 224), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(pixels)).double().permute(2, 0, 1)

    x = torch.stack([pillow(image) for image in images]) / 255
    x = (x - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    patches = x.view(-1, 3, 16, 14, 16, 14).permute(0, 2, 4, 1, 3, 5).reshape(len(x), 256, -1)
    tokens = patches @ t["patch_embed.proj.weight"].flatten(1).T + t["patch_embed.proj.bias"]
    axis = resampling(GRID, 16, 16.1 / GRID)
    table = torch.einsum("ia,jb,abd->ijd", axis, axis, t["pos_embed"][0, 1:].view(GRID, GRID, WIDTH))
    table = torch.cat([t["pos_embed"][0, :1], table.reshape(256, WIDTH)])
    x = torch.cat([t["cls_token"].expand(len(x), 1, WIDTH), tokens], 1) + table

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def norm(x, name):
        return layer_norm(x, (WIDTH,), t[f"{name}.weight"], t[f"{name}.bias"], 1e-6)

    for i in range(DEPTH):
        b = f"blocks.{i}"
        qkv = linear(norm(x, f"{b}.norm1"), f"{b}.attn.qkv").view(len(x), 257, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = softmax(q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS), -1) @ v
        attended = attended.transpose(1, 2).reshape(len(x), 257, WIDTH)
        x = x + t[f"{b}.ls1.gamma"] * linear(attended, f"{b}.attn.proj")
        hidden = linear(norm(x, f"{b}.norm2"), f"{b}.mlp.fc1")
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        x = x + t[f"{b}.ls2.gamma"] * linear(hidden, f"{b}.mlp.fc2")
    return norm(x, "norm")[:, 0]


@pytest.mark.parametrize("size", [20, 300])
def test_the_features_are_the_class_tokens_of_the_formulas(extractor, size):
    images = some(3, 2).repeat_interleave(size // 2, 2).repeat_interleave(size // 2, 3)  # four colours each
    found = extractor(images)
    wanted = by_hand(meta_file(), images)
    assert found.features.shape == (3, WIDTH) and found.logits.shape == (3, 0)
    assert torch.allclose(found.features.double(), wanted, atol=1e-4)  # of about 1; bytes differ by 1 in places
    assert wanted.std(0).max() > 0.01  # the control: other images have other features


@pytest.mark.parametrize("size", [8, 32, 300])
def test_resized_bytes_are_pillows(size):
    images = some(2, size)
    ours = module.as_pillow(images)
    theirs = [Image.fromarray(i.permute(1, 2, 0).numpy()).resize((224, 224), Image.Resampling.BICUBIC) for i in images]
    apart = (ours.permute(0, 2, 3, 1) - torch.tensor(np.stack([np.array(i) for i in theirs]))).abs()
    assert apart.max() <= 1 and apart.mean() < 0.01


def test_the_position_table_is_resized_by_metas_factor():
    table = torch.randn(1, 1 + GRID**2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = module.resized_positions(table, 16)
    wanted = {}
    for factor in (16.1 / GRID, 16 / GRID):
        axis = resampling(GRID, 16, factor)
        wanted[factor] = torch.einsum("ia,jb,abd->ijd", axis, axis, table[0, 1:].view(GRID, GRID, 3)).reshape(256, 3)
    assert torch.equal(found[0, 0], table[0, 0])
    assert torch.allclose(found[0, 1:], wanted[16.1 / GRID], atol=1e-6)
    assert not torch.allclose(found[0, 1:], wanted[16 / GRID], atol=0.1)  # the control: the plain factor
    assert module.resized_positions(found, 16) is found  # a table of the right size stays


def test_the_maps_are_the_patches_after_the_norm(extractor):
    """As timm gives them, by place."""
    images, network = some(3), extractor._network[0]
    scaled = (module.as_pillow(images) / 255 - network.mean) / network.std
    (wanted,) = network.transformer.forward_intermediates(scaled, 1, norm=True, intermediates_only=True)
    maps = extractor.maps(images)
    assert maps.shape == (3, WIDTH, 16, 16) and torch.allclose(maps, wanted, atol=1e-5)
    assert maps.std() > 0.1 and not torch.allclose(maps, wanted.transpose(2, 3), atol=1e-5)


def test_a_batch_and_a_second_time_change_nothing(extractor, weights):
    images = some(20)
    first = extract(extractor, images, batch_size=20).features
    assert torch.equal(first, extract(DINOv2Features(str(weights), **TINY), images, batch_size=20).features)
    assert torch.allclose(first, extract(extractor, images, batch_size=3).features, atol=1e-5)


def test_a_safetensors_file_of_timm_is_the_same_network(extractor, tmp_path):
    tensors = {key: value for key, value in meta_file().items() if key != "mask_token"}
    save_file(tensors, tmp_path / "timm.safetensors")
    same = DINOv2Features(str(tmp_path / "timm.safetensors"), **TINY)
    assert torch.equal(same(some(2)).features, extractor(some(2)).features)


def test_the_published_network_is_the_default():
    extractor = DINOv2Features("weights.pth")
    with torch.device("meta"):
        transformer = extractor._transformer()
    # Of the published 304,368,640 parameters, the mask token has 1024 and the table of 37x37 patches 1113 more rows.
    assert sum(p.numel() for p in transformer.parameters()) == 304_368_640 - 1024 - (GRID**2 - 16**2) * 1024
    assert (extractor.name, extractor.feature_dim, extractor.suffix) == ("dinov2", 1024, "_dinov2")
    assert named("fid")[0].public_name(50000, extractor) == "fd50k_dinov2"
    small = DINOv2Features("weights.pth", width=384, depth=12, heads=6)
    assert named("kid")[0].public_name(1000, small) == "kd1k_dinov2_384x12"  # another network has another name


def test_the_cache_depends_on_the_weights(extractor, tmp_path):
    other = meta_file()
    other["cls_token"] = other["cls_token"] + 1
    torch.save(other, tmp_path / "other.pth")
    images = colours().source.train()
    one, two = (
        describe(images, e, "x", "train", 0) for e in (extractor, DINOv2Features(tmp_path / "other.pth", **TINY))
    )
    assert [key for key in one if one[key] != two[key]] == ["weights_sha256"]


# -- an evaluation ------------------------------------------------------------------------------------------------


BESIDE = ["test_fid", "copying"]


def colours(extractor=None):
    from diffusion_lab.data import ArrayImages, ImageSource

    class Colours(ImageSource):
        name, channels, image_size = "colours", 3, 8

        def train_size(self):
            return 24

        def load(self, split):
            return ArrayImages(some(24 if split == "train" else 8, 8))

    return ImageDataModule(Colours(), batch_size=8, features=extractor)


def test_classes_are_refused_and_the_rest_is_measured(extractor, elementwise):
    from diffusion_lab.solvers import DDIM

    data = colours(extractor)
    with pytest.raises(
        ValueError, match=r"^names=\[is\] must be measured with an extractor that has class scores, and"
    ):
        Evaluation(20, metrics=named("fid", "is")).check(data)
    results = Evaluation(20, metrics=named("fid", "kid", "precision"))(elementwise, DDIM(steps=2), data).results
    names = [f"{name}20_dinov2_8x2" for name in ("fd", "kd", "precision")]
    assert [result.name for result in results] == [*names, "copying20"]  # of too few test images for test_fd
    assert results[0].value > 0 and math.isfinite(results[0].value)
    assert results[0].protocol["extractor"] == {"name": "dinov2_8x2", "weights_sha256": extractor.weights_sha256}


def test_a_conditional_model_has_no_agreement_with_it(extractor):
    data = ImageDataModule(Digits(), batch_size=8, conditional=True, features=extractor)
    assert [m.name for m in Evaluation(20, metrics=named("fid")).measured(data)] == ["fid", *BESIDE]
    data.features = ClassifierFeatures("digits")  # the control: these have the classes
    assert [m.name for m in Evaluation(20, metrics=named("fid")).measured(data)] == ["fid", "agreement", *BESIDE]


# -- errors -------------------------------------------------------------------------------------------------------


def test_missing_weights_teach_the_cure(tmp_path):
    with pytest.raises(FileNotFoundError, match="^weights=null must be a file; give the path of Meta's dinov2_vitl14"):
        DINOv2Features().check()
    with pytest.raises(FileNotFoundError, match=r"^weights=/nowhere.pth: there is no file /nowhere.pth; give the path"):
        DINOv2Features("/nowhere.pth").check()


def test_without_timm_the_extra_is_named(weights, monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"must have timm, which is not installed; pip install 'diffusion-lab\[dinov2"):
        DINOv2Features(str(weights), **TINY).check()


class Trap:
    def __reduce__(self):
        return print, ("unpickled",)


def foreign(path, kind):
    if kind == "other network":
        torch.save(meta_file(width=12), path)
    elif kind == "fewer blocks":
        torch.save(meta_file(depth=1), path)
    elif kind == "no square":
        tensors = meta_file()
        torch.save(tensors | {"pos_embed": tensors["pos_embed"][:, :-1]}, path)
    elif kind == "registers":
        torch.save(meta_file() | {"register_tokens": torch.zeros(1, 4, WIDTH)}, path)
    elif kind == "a list":
        torch.save([torch.zeros(3)], path)
    elif kind == "a class":
        torch.save({"pos_embed": Trap()}, path)
    elif kind == "an archive":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "text")
    else:
        path.write_bytes(b"")


KINDS = ("other network", "fewer blocks", "no square", "registers", "a list", "a class", "an archive", "nothing")


@pytest.mark.parametrize("kind", KINDS)
def test_another_file_is_one_sentence(tmp_path, kind, capsys):
    foreign(tmp_path / "weights.pth", kind)
    path = re.escape(str(tmp_path / "weights.pth"))
    with pytest.raises(ValueError, match=rf"^weights={path} must hold a DINOv2 transformer with width=8, depth=2") as e:
        DINOv2Features(str(tmp_path / "weights.pth"), **TINY).check()
    assert "\n" not in str(e.value) and "unpickled" not in capsys.readouterr().out


def test_arguments_out_of_range():
    with pytest.raises(ValueError, match="^width=0 must be an integer >= 1; leave it out for ViT-L/14"):
        DINOv2Features(width=0)
    with pytest.raises(ValueError, match="^heads=5 must divide width=1024"):
        DINOv2Features(heads=5)


# -- from the command line ----------------------------------------------------------------------------------------


def png(seed):
    file = io.BytesIO()
    Image.fromarray(some(1, 8, seed)[0].permute(1, 2, 0).numpy()).save(file, "png")
    return file.getvalue()


def test_a_run_is_evaluated_with_it(weights, in_folder, capsys):
    import json

    from diffusion_lab.cli.main import main

    photos = in_folder / "photos"
    photos.mkdir()
    for i in range(30):
        (photos / f"{i}.png").write_bytes(png(i))
    tiny = [f"{key}={value}" for key, value in TINY.items()]
    options = ["dataset=image_folder", f"dataset.source.root={photos}", "dataset.source.image_size=8", "max_steps=2"]
    options += ["batch_size=4", "snapshot_every=2", "checkpoint_every=2", "metrics.num_samples=20"]
    ours = ["+features@dataset.features=dinov2", f"dataset.features.weights={weights}"]
    ours += [f"dataset.features.{setting}" for setting in tiny]
    assert main(["train", *options, *ours, "metrics.names=[fid,is]"]) == 2
    assert "names=[is] must be measured with an extractor that has class scores" in capsys.readouterr().err
    assert main(["train", *options, *ours, "metrics.names=[fid]"]) == 0
    (run,) = (in_folder / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == ["fd20_dinov2_8x2", "copying20"]
    later = ["features=dinov2", f"features.weights={weights}", *(f"features.{setting}" for setting in tiny)]
    asked = ["metrics.names=[kid]", "metrics.num_samples=20"]
    assert main(["evaluate", f"run={run}", *later, *asked, "weights=ema"]) == 0
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    assert lines[-1]["name"] == "kd20_dinov2_8x2"
    wrong = ["features=dinov2", "features.weights=/nowhere.pth"]
    assert main(["evaluate", f"run={run}", *wrong, "metrics.names=[fid]", "metrics.num_samples=5000"]) == 2
    assert "there is no file /nowhere.pth" in capsys.readouterr().err
