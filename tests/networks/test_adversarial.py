"""The networks of GANs: known sizes, spectral norm, attention, classes, second derivatives; and their losses."""

import math

import pytest
import torch
from torch import nn

from diffusion_lab.networks import DCGAN, BigGAN, Hinge, NonSaturating
from diffusion_lab.networks.biggan import BigGANAttention, normalised


def parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_dcgan_has_the_size_of_the_published_layers():
    """At 64 pixels and 64 channels the layers without biases have 3,576,704 and 2,765,568 weights, as known."""
    networks = DCGAN(3, 3, 64, base_channels=64)
    assert parameters(networks.generator) == 3_576_704 + 3  # and a bias of the image
    assert parameters(networks.discriminator) == 2_765_568 + 64 + 1  # and biases beside the two layers without a norm


@pytest.mark.parametrize("size", [8, 28, 32])
@pytest.mark.parametrize("make", [DCGAN, BigGAN])
def test_sides_fit(make, size):
    networks = make(3, 3, size, base_channels=8)
    images = networks.generator(torch.randn(2, networks.generator.latent_dim))
    assert images.shape == (2, 3, size, size) and images.abs().max() <= 1
    assert networks.discriminator(images).shape == (2,)


def test_a_side_that_cannot_be_halved_is_refused_and_so_is_attention_at_no_side():
    with pytest.raises(ValueError, match="smallest=4 must be at most half of the images' 7 pixels"):
        DCGAN(1, 1, 7)
    with pytest.raises(ValueError, match="attention_resolution=16 must be null or one of 8"):
        BigGAN(1, 1, 8, attention_resolution=16)


def tiny(**changes):
    torch.manual_seed(0)
    return BigGAN(1, 1, 8, **({"latent_dim": 5, "base_channels": 8, "attention_resolution": 8} | changes))


def test_an_image_depends_on_its_own_latent_and_label_alone():
    generator = tiny(num_classes=3).generator
    z, label = torch.randn(4, 5), torch.tensor([0, 1, 2, 0])
    for _ in range(3):
        generator.train()(z, label=label)
    together = generator.eval()(z, label=label)
    alone = torch.cat([generator(z[i : i + 1], label=label[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)
    assert (together - generator(z, label=label.roll(1))).abs().max() > 1e-3
    in_training = generator.train()(z, label=label)  # negative control: a batch's own statistics
    assert (together - in_training).abs().max() > 1e-3


def test_both_networks_need_labels_if_they_have_classes():
    networks = tiny(num_classes=3)
    with pytest.raises(ValueError, match="no label"):
        networks.generator(torch.randn(2, 5))
    with pytest.raises(ValueError, match="no label"):
        networks.discriminator(torch.randn(2, 1, 8, 8))
    with pytest.raises(ValueError, match="labels"):
        tiny().generator(torch.randn(2, 5), label=torch.zeros(2, dtype=torch.int64))


def test_the_projection_adds_the_product_with_the_class():
    discriminator = tiny(num_classes=3).discriminator.eval()
    x, label = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 2, 0])
    f = discriminator.blocks(discriminator.first(x)).relu().sum((2, 3))
    expected = discriminator.linear(f)[:, 0] + (discriminator.embedding.weight[label] * f).sum(1)
    torch.testing.assert_close(discriminator(x, label=label), expected)


@pytest.mark.parametrize("layer", [nn.Linear(6, 4), nn.Conv2d(3, 5, 3), nn.Embedding(7, 4)])
def test_spectral_norm_makes_the_largest_singular_value_one(layer):
    torch.manual_seed(0)
    normal = normalised(layer)
    with torch.no_grad():
        normal.parametrizations.weight.original.normal_(0, 3)
    for _ in range(200):
        _ = normal.train().weight  # in training mode each access is one power iteration
    singular = torch.linalg.svdvals(normal.eval().weight.detach().flatten(1))
    assert singular[0] == pytest.approx(1, abs=1e-3)
    assert torch.equal(normal.weight, normal.weight)


def test_attention_starts_as_the_identity_and_then_mixes_pixels():
    torch.manual_seed(0)
    attention, x = BigGANAttention(16), torch.randn(2, 16, 4, 4)
    assert torch.equal(attention(x), x)
    with torch.no_grad():
        attention.gamma.fill_(1.0)
    other = x.clone()
    other[:, :, 0, 0] += 1
    assert (attention(other) - attention(x))[:, :, 3, 3].abs().max() > 1e-4


def test_the_loss_has_second_derivatives():
    networks = tiny().double().eval()
    with torch.no_grad():
        for module in networks.modules():
            if isinstance(module, BigGANAttention):
                module.gamma.fill_(0.5)
    weights = list(networks.generator.parameters())
    z = torch.randn(3, 5, dtype=torch.float64)

    def gradient():
        loss = NonSaturating().generator(networks.discriminator(networks.generator(z))).mean()
        return torch.autograd.grad(loss, weights, create_graph=True)

    directions = [torch.randn_like(w) for w in weights]
    along = sum((g * d).sum() for g, d in zip(gradient(), directions, strict=True))
    product = torch.autograd.grad(along, weights)
    step = 1e-6
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            for w, d in zip(weights, directions, strict=True):
                w += sign * step * d
        ends.append([g.detach() for g in gradient()])
        with torch.no_grad():
            for w, d in zip(weights, directions, strict=True):
                w -= sign * step * d
    for exact, up, down in zip(product, *ends, strict=True):
        torch.testing.assert_close(exact, (up - down) / (2 * step), atol=1e-5, rtol=1e-4)


def test_losses_are_their_formulas():
    real, fake = torch.tensor([2.0, -0.5]), torch.tensor([-3.0, 0.25])

    def s(x):
        return 1 / (1 + math.exp(-x))

    expected = [-math.log(s(r)) - math.log(1 - s(f)) for r, f in zip(real.tolist(), fake.tolist(), strict=True)]
    assert NonSaturating().discriminator(real, fake).tolist() == pytest.approx(expected)
    assert NonSaturating().generator(fake).tolist() == pytest.approx([-math.log(s(-3.0)), -math.log(s(0.25))])
    assert Hinge().discriminator(real, fake).tolist() == pytest.approx([0.0 + 0.0, 1.5 + 1.25])
    assert Hinge().generator(fake).tolist() == pytest.approx([3.0, -0.25])
