"""Train a small network whose features judge a data set, from images of that data set alone.

It answers questions about an image that is shifted by at most an eighth of its side, and mirrored where the data are:

    with classes      which class it has
    without           by which of the four quarter turns it is turned       Gidaris et al. (2018), arXiv:1803.07728
                      and which of M of the training images it is           Dosovitskiy et al. (2014), arXiv:1406.6909

The loss is the cross entropy of the class, or the sum of both others. Noise, blur, colour and contrast are never
changed, so that the features see them.

Adam, learning rate to 3e-3 and back to 0 on one cycle, 128 images per step. The network and the optimizer run on one
thread of a CPU with random numbers of their own, so the weights are a function of the images for one kind of processor
and version of PyTorch; the run that measures, its device and its number of threads change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy, pad

from diffusion_lab.metrics.features import SmallClassifier
from diffusion_lab.progress import progress
from diffusion_lab.streams import Streams

FORMAT = 1  # version of the training; raise it when the weights change
LARGEST = 64  # pixels of a side that the network sees
STEPS, BATCH, LEARNING_RATE, WIDTH = 600, 128, 3e-3, 16
DIMS = (64, 32, 16)  # numbers of features
TURNS = 4
RECOGNISED = 1024  # M, images that are recognised, at most


def dim_for(count: int) -> int | None:
    """Number of features D for `count` training images, at least four images each; None for fewer than 64 images."""
    return next((dim for dim in DIMS if count >= 4 * dim), None)


def at_most(images: Tensor) -> Tensor:
    """(N,C,S,S) uint8 -> the same, or with `LARGEST` pixels per side, the rounded means over the pixels of each."""
    if images.shape[-1] <= LARGEST:
        return images
    return adaptive_avg_pool2d(images.float(), LARGEST).round_().to(torch.uint8)


def new_network(shape: Sequence[int], feature_dim: int, count: int, classes: int | None) -> SmallClassifier:
    """The untrained network.

    Args:
        shape: (C,S,S) of the data set's images; images above 32 pixels have a first stride of 2.
        feature_dim: D.
        count: number of images that it will be trained with.
        classes: K >= 2, or None.
    """
    side = min(shape[-1], LARGEST)
    answers, dropout = (TURNS + min(count, RECOGNISED), 0.0) if classes is None else (classes, 0.2)
    return SmallClassifier(shape[0], side, answers, WIDTH, feature_dim, dropout, stride=2 if side > 32 else 1)


def learn(network: SmallClassifier, images: Tensor, labels: Tensor | None, mirror: bool, what: str) -> None:
    """Train the network, `alone`.

    Args:
        network: of `new_network`.
        images: (N,C,S,S) uint8 of `at_most`.
        labels: (N,) int64 in 0..K-1, or None.
        mirror: whether half of the images are mirrored, as the data set's are in training.
        what: name of the work, to show its progress.
    """
    streams, count = Streams(0), len(images)
    known = torch.randperm(count, generator=streams.generator("cpu", "order"))[: RECOGNISED if labels is None else None]
    network.train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE, weight_decay=1e-4)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, STEPS, pct_start=0.1)
    with progress(what, STEPS, "steps") as task:
        for step in range(STEPS):
            picked = (streams.uniform(BATCH, "rows", step) * len(known)).long()
            seen = shifted(images[known[picked]].float(), images.shape[-1] // 8, streams, step)
            if mirror:
                seen[: BATCH // 2] = seen[: BATCH // 2].flip(3)
            if labels is None:
                loss = self_supervised(network, seen, picked)
            else:
                loss = cross_entropy(network(seen)[1], labels[known[picked]], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            cycle.step()
            task.advance()
    network.eval()


def self_supervised(network: SmallClassifier, seen: Tensor, picked: Tensor) -> Tensor:
    """Loss of both questions for images (B,C,S,S), of which row i is turned by i mod 4 quarters; picked (B,) int64."""
    turns = torch.arange(len(seen)) % TURNS
    turned = seen.clone()
    for turn in range(1, TURNS):
        turned[turn::TURNS] = torch.rot90(seen[turn::TURNS], turn, (2, 3))
    logits = network(turned)[1]
    return cross_entropy(logits[:, :TURNS], turns) + cross_entropy(logits[:, TURNS:], picked)


def shifted(images: Tensor, room: int, streams: Streams, *position: int, edges: str = "replicate") -> Tensor:
    """Images (B,C,S,S), each moved by its own number of pixels in -room..room. Edges are repeated, of floats, or black
    where they are "constant"."""
    count, channels, side, _ = images.shape
    padded = pad(images, (room, room, room, room), mode=edges)
    down, right = (streams.uniform(2 * count, "augment", *position) * (2 * room + 1)).long().view(2, count)
    rows, columns = (start[:, None] + torch.arange(side) for start in (down, right))
    of, channel = torch.arange(count)[:, None, None, None], torch.arange(channels)[:, None, None]
    return padded[of, channel, rows[:, None, :, None], columns[:, None, None, :]]


@contextmanager
def alone() -> Iterator[None]:
    """Make and train a network inside: on one thread, with gradients, in float32 and with global random numbers of its
    own, all of which are afterwards what they were. An evaluation does so in inference mode, in the middle of a run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            torch.random.fork_rng(devices=[]),
        ):
            torch.manual_seed(Streams(0).key("init"))
            yield
    finally:
        torch.set_num_threads(threads)
