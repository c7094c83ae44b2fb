"""A compact SVG shows what Matplotlib's shows."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from diffusion_lab.plotting import DECIMALS, compact_svg, style


@pytest.fixture(scope="module")
def original() -> str:
    """Curves, text, a legend and an image, as Matplotlib writes them."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6, 3))
        left, right = figure.subplots(1, 2)
        left.plot(np.linspace(0, 1, 300), np.sin(np.linspace(0, 9, 300)), label="sine of -x")
        left.legend()
        left.set_xlabel("$10^{-3}$ of t")
        right.imshow(np.random.default_rng(0).random((40, 40)))
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue().decode()


def _numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text)]


def _parts(svg: str) -> list[tuple[str, dict[str, str]]]:
    """Tags and attributes in order, metadata left out."""
    root = ElementTree.fromstring(svg)
    ours = [node for node in root.iter() if "svg" in node.tag or "xlink" in node.tag]
    return [(node.tag, dict(node.attrib)) for node in ours if not node.tag.endswith("metadata")]


def test_same_elements_with_coordinates_rounded(original: str) -> None:
    before, after = _parts(original), _parts(compact_svg(original))
    assert [tag for tag, _ in before] == [tag for tag, _ in after]
    for (_, old), (_, new) in zip(before, after, strict=True):
        assert old.keys() == new.keys()
        for key, value in old.items():
            if value.startswith("data:"):
                assert re.sub(r"\s", "", value) == new[key]
                continue
            assert re.sub(r"[-\d.e\s]", "", value) == re.sub(r"[-\d.e\s]", "", new[key])
            np.testing.assert_allclose(_numbers(new[key]), _numbers(value), atol=0.5 * 10**-DECIMALS + 1e-12)


def test_glyph_scales_keep_their_digits(original: str) -> None:
    scales = set(re.findall(r"scale\([^)]*\)", original))
    assert any(len(scale) > len("scale(0.12 -0.12)") for scale in scales)  # else rounding would change none
    assert scales == set(re.findall(r"scale\([^)]*\)", compact_svg(original)))


def test_far_fewer_lines_and_fewer_bytes(original: str) -> None:
    short = compact_svg(original)
    assert short.count("\n") < original.count("\n") / 20
    assert len(short) < len(original)
    assert compact_svg(short) == short
