"""However the global batch is cut up among processes and passes, the same weights come out, but for rounding.

The distance is that of all weights as one vector. Tensor by tensor it is two to three times as large for a bias that
began at zero: Adam divides a gradient by its own size, so one that is almost zero gives steps of rounding noise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness import configuration, final_state, train_child, wait_for_step

pytestmark = pytest.mark.slow
STEPS, TOLERANCE = 20, 1e-5
TWO = ["trainer.devices=2", "trainer.strategy=ddp_fork"]
LABELS = ["dataset.conditional=true", "dataset.label_dropout=0.2"]
SPLITS = {
    "two processes": TWO,
    "two processes, two passes": [*TWO, "accumulate=2"],
    "two processes, images per device": [*TWO, "images_per_device=2"],
    "one process, images per device": ["images_per_device=4"],
    "labels, two processes, images per device": [*TWO, *LABELS, "images_per_device=4"],
}
State = dict[str, Any]


def run(folder: Path, *overrides: str, before: Callable[[], object] | None = None) -> State:
    """The final state of a run of 20 steps."""
    train_child(twenty_steps(folder, *overrides), before).succeed()
    state = final_state(folder)
    assert state["step"] == STEPS
    return state


def twenty_steps(folder: Path, *overrides: str) -> Any:
    return configuration(folder, f"max_steps={STEPS}", "~callbacks.validation", *overrides)


def distance(one: State, two: State) -> float:
    """|a - b| / |a| of all weights together."""
    assert one["step"] == two["step"] and one["weights"].keys() == two["weights"].keys()
    a, b = (torch.cat([w.double().flatten() for w in state["weights"].values()]) for state in (one, two))
    return float((a - b).norm() / a.norm())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, State]:
    """One process, one pass: unconditional and with labels."""
    folder = tmp_path_factory.mktemp("whole")
    return {False: run(folder / "plain" / "run"), True: run(folder / "labels" / "run", *LABELS)}


SECOND = "two processes, images per device"  # as with labels


@pytest.mark.parametrize(
    "split", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name == SECOND)) for name in SPLITS]
)
def test_every_split_ends_at_the_same_weights(split: str, whole: dict[bool, State], tmp_path: Path) -> None:
    apart = run(tmp_path / "run", *SPLITS[split])
    assert distance(whole["labels" in split], apart) < TOLERANCE


def the_second_process_sees_the_first_ones_noise() -> None:
    from diffusion_lab.timesteps import Position

    original = Position.rows
    Position.rows = lambda self, n: original(self._replace(rank=0), n)


def test_negative_control_noise_keyed_without_the_process_differs(whole: dict[bool, State], tmp_path: Path) -> None:
    apart = run(tmp_path / "run", *TWO, before=the_second_process_sees_the_first_ones_noise)
    assert distance(whole[False], apart) > 100 * TOLERANCE


def test_a_run_goes_on_with_more_processes_and_then_with_fewer(whole: dict[bool, State], tmp_path: Path) -> None:
    """7 steps on one process, 6 on two in passes of 2 images, the rest on one in passes of 8: the same run."""
    folder = tmp_path / "run"
    for step, split in ((7, []), (13, [*TWO, "images_per_device=2"])):
        child = train_child(twenty_steps(folder, "checkpoint_every=1", *split))
        wait_for_step(child, folder, step)
        child.kill()
        assert step - 1 <= final_state(folder)["step"] < STEPS
    changed = run(folder, "checkpoint_every=1", "images_per_device=8")
    assert distance(whole[False], changed) < TOLERANCE
    assert changed["metrics"].count(b"\n") == whole[False]["metrics"].count(b"\n")
