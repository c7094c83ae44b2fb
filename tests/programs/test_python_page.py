"""Every block of docs/python.md runs, shortened where it trains."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
SHORT = [("max_steps=300", "max_steps=4"), ('"sampler=logit_normal"', '"sampler=logit_normal", "metrics=none"')]


@pytest.mark.pages
@pytest.mark.filterwarnings("ignore")  # of Lightning
def test_the_blocks_run_in_their_order(in_folder: Path) -> None:
    assert find_spec("accelerate") and find_spec("diffusers"), "the extra dev has both"
    values: dict[str, Any] = {}
    for block in BLOCKS:
        for long, short in SHORT:
            block = block.replace(long, short)
        exec(compile(block, str(PAGE), "exec"), values)
    assert (in_folder / "samples.png").stat().st_size > 0
    assert values["images"].shape == (16, 1, 8, 8) and values["t"].shape == (16,)


def test_the_loops_are_as_short_as_they_are_said_to_be() -> None:
    trainer = next(block for block in BLOCKS if "trainer.fit" in block)
    statements = [line for line in trainer.splitlines() if line and not line.startswith(("from ", "import "))]
    assert len(trainer.split("\n\n")) == 2 and len(statements) <= 7 and len(trainer.strip().splitlines()) <= 17
    loop = next(block for block in BLOCKS if "for step" in block)
    assert sum("timesteps" in line or "LoopSampler" in line for line in loop.splitlines()) == 5
