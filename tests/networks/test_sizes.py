"""Every paper-size network has the number of parameters that the papers' own code has; nothing is allocated."""

import pytest
import torch

from tests.networks.configured import CONF, configured, parameters

IMAGENET = {"num_classes": 1000}
GUIDED = {"num_classes": 1001}  # the last index is "no label"
LARGE_4 = {"patch_size": 4, **GUIDED}
P2 = {"base_channels": 128, "num_res_blocks": 1, "attention_resolutions": [16]}
IMAGENET_64 = {"channel_multipliers": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("name", "channels", "outputs", "size", "changes", "count"),
    [
        ("unet_iddpm", 3, 6, 32, {}, 52_546_438),
        ("unet_iddpm", 3, 3, 32, {}, 52_542_979),
        ("unet_iddpm", 3, 6, 64, IMAGENET_64, 121_063_942),
        ("adm_64", 3, 6, 64, IMAGENET, 295_904_454),
        ("adm_128", 3, 6, 128, IMAGENET, 421_529_606),
        ("adm_256", 3, 6, 256, {}, 552_814_086),
        ("adm_256", 3, 6, 256, IMAGENET, 553_838_086),
        ("adm_256", 3, 6, 256, P2, 93_563_910),  # P2's light network
        ("adm_sr", 3, 6, 256, IMAGENET, 311_795_910),
        ("ldm_celebahq", 3, 3, 64, {}, 274_056_163),
        ("uvit_small", 3, 3, 32, {}, 44_255_328),
        ("uvit_small_4", 3, 3, 64, {}, 44_292_228),
        ("uvit_mid", 3, 3, 64, IMAGENET, 130_940_292),
        ("uvit_large", 4, 4, 32, GUIDED, 286_763_172),
        ("uvit_large", 3, 3, 64, {"patch_size": 4, **IMAGENET}, 286_827_652),
        ("uvit_large", 4, 4, 64, LARGE_4, 286_861_524),
        ("uvit_huge", 4, 4, 32, GUIDED, 500_832_016),
        ("uvit_huge", 4, 4, 32, {}, 499_677_712),
        ("uvit_huge", 4, 4, 64, LARGE_4, 500_942_656),
    ],
)
def test_published_number_of_parameters(name, channels, outputs, size, changes, count):
    assert parameters(configured(name, channels, outputs, size, "meta", **changes)) == count


DIT = {"dit_s": (384, 12, 6), "dit_b": (768, 12, 12), "dit_l": (1024, 24, 16), "dit_xl": (1152, 28, 16)}
MILLIONS = {"dit_s": 33, "dit_b": 130, "dit_l": 458, "dit_xl": 675}  # at patch 2, Peebles and Xie 2023, table 4


def dit_parameters(dim, depth, patch, outputs):
    """(with the table of positions, without it) on latents of 4 x 32 x 32, with 1000 classes and the null label.

    A block has qkv (3), attention's Linear (1), two of 4 D (8) and the modulation (6) of D x D each, with biases.
    """
    ends = (4 * patch**2 + 1) * dim + (dim + 1) * (2 * dim + outputs * patch**2)
    condition = (256 + 1) * dim + (dim + 1) * dim + 1001 * dim
    trained = depth * (18 * dim**2 + 15 * dim) + ends + condition
    return trained + (32 // patch) ** 2 * dim, trained


@pytest.mark.parametrize("patch", [2, 4, 8])
@pytest.mark.parametrize("name", DIT)
def test_dit_has_the_published_number_of_parameters(name, patch):
    dim, depth, heads = DIT[name]
    network = configured(name, 4, 8, 32, "meta", patch_size=patch, **GUIDED)
    whole = parameters(network) + network.position.numel()
    assert (whole, parameters(network)) == dit_parameters(dim, depth, patch, 8)
    assert patch > 2 or round(parameters(network) / 1e6) == MILLIONS[name]
    assert network.blocks[0].attention.num_heads == heads


def test_dit_xl_2_has_the_number_that_is_quoted():
    assert dit_parameters(1152, 28, 2, 8) == (675_129_632, 674_834_720)
    fewer = parameters(configured("dit_xl", 4, 4, 32, "meta", **GUIDED))  # a fixed variance
    assert 674_834_720 - fewer == 2**2 * 4 * 1153


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("unet_iddpm", ["52,546,438", "52,542,979"]),
        ("adm_64", ["295,904,454"]),
        ("adm_128", ["421,529,606"]),
        ("adm_256", ["552,814,086", "553,838,086"]),
        ("adm_sr", ["311,795,910"]),
        ("ldm_celebahq", ["274,056,163"]),
        ("uvit_small", ["44,255,328"]),
        ("uvit_small_4", ["44,292,228"]),
        ("uvit_mid", ["130,940,292"]),
        ("uvit_large", ["286,763,172"]),
        ("uvit_huge", ["500,832,016"]),
        ("dit_s", ["32,865,056", "32,920,448", "33,142,016"]),
        ("dit_b", ["130,315,808", "130,426,496", "130,869,248"]),
        ("dit_l", ["457,840,672", "457,988,224", "458,578,432"]),
        ("dit_xl", ["674,834,720", "675,000,704", "675,664,640"]),
    ],
)
def test_files_say_the_published_number(name, counts):
    text = (CONF / f"{name}.yaml").read_text()
    assert all(count in text for count in counts)


def test_count_follows_the_outputs():
    """Negative control: one output channel more is 9 x 128 weights and a bias."""
    more = parameters(configured("unet_iddpm", 3, 7, 32, "meta")) - parameters(
        configured("unet_iddpm", 3, 6, 32, "meta")
    )
    assert more == 9 * 128 + 1


@pytest.mark.parametrize(
    ("name", "channels", "size", "count"),
    [
        ("adm_tiny", 1, 8, 195_505),
        ("adm_small", 1, 28, 4_548_289),
        ("adm_sr_tiny", 3, 8, 196_515),
        ("uvit_tiny", 1, 8, 159_438),
        ("dit_tiny", 1, 8, 328_260),
    ],
)
def test_tiny_networks_are_as_small_as_their_files_say(name, channels, size, count):
    assert parameters(configured(name, channels, channels, size, "meta")) == count
    assert f"{count:,}" in (CONF / f"{name}.yaml").read_text()


@pytest.mark.parametrize("size", [8, 12, 28, 32])
@pytest.mark.parametrize("name", ["adm_tiny", "adm_sr_tiny", "uvit_tiny", "dit_tiny"])
def test_tiny_networks_take_images_of_8_to_32_pixels(name, size):
    network = configured(name, 3, 6, size, num_classes=4)
    small = {"low_res": torch.randn(2, 3, size // 4, size // 4)} if name == "adm_sr_tiny" else {}
    out = network(torch.randn(2, 3, size, size), torch.tensor([0, 999]), label=torch.tensor([0, 3]), **small)
    assert out.shape == (2, 6, size, size) and out.dtype == torch.float32
