"""Methods of papers as a user's own files: each is one Python file and yaml files in `methods/`, and edits nothing.

Each trains, is stopped, goes on to the same bits, is evaluated, and has its own name in its record and in the table.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from diffusion_lab.cli.main import main
from tests.harness import command_child, differences, final_state, wait_for_step

METHODS = Path(__file__).parent / "methods"
NAMES = sorted(path.stem for path in METHODS.glob("method/*.yaml"))
QUICKER = ("aligned", "equilibrium", "k_noises", "masked", "self_aligned")  # what no other test of CI trains
SMALL = (
    "network.base_channels=8",
    "network.num_res_blocks=1",
    "schedule.num_timesteps=100",
    "batch_size=8",
    "log_every=1",
    "snapshot_every=0",
    "trainer.accelerator=cpu",
    "optimizer.lr=0.001",
    "callbacks.ema.decays=[0.9]",
    "logger=none",
    "~callbacks.generation",
    "~callbacks.validation",
    "metrics=none",
    "max_steps=4",
    "checkpoint_every=2",
    "keep_every=2",
    "threads=1",
)


def words(folder: Path, method: str, *more: str) -> list[str]:
    return ["train", "--config-dir", str(METHODS), f"method={method}", *SMALL, *more, f"hydra.run.dir={folder}"]


def train(folder: Path, method: str, *more: str) -> int:
    return main(words(folder, method, *more))


def continued(method: str, *more: str) -> None:
    """Trains `whole`, and `stopped` from its checkpoint of step 2, as a kill at step 3 had left it: the bits agree."""
    assert train(Path("whole"), method, *more) == 0
    stopped = Path(shutil.copytree("whole", "stopped"))
    (stopped / "result.json").unlink()
    (stopped / "checkpoints" / "step-00000002.ckpt").replace(stopped / "checkpoints" / "last.ckpt")
    assert train(stopped, method, *more) == 0
    assert differences(*(final_state(Path(name)) for name in ("whole", "stopped"))) == []


@pytest.mark.filterwarnings("ignore:.torch.jit.script:FutureWarning")  # inside torch.func.jvp
@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.slow if name in QUICKER else pytest.mark.exhaustive) for name in NAMES],
)
def test_a_method_from_outside(method: str, in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = []
    if method == "weak_guidance":
        assert train(Path("weak"), "ddpm") == 0
        more = ["solver.weak.run=weak"]
    continued(method, *more)
    assert "continuing stopped from step 2" in capsys.readouterr().out
    record = json.loads(Path("stopped/run.json").read_text())
    assert record["method"] == method and record["run_id"].startswith(f"digits-{method}-")
    assert main(["evaluate", "metrics.names=[sample_variance]", "metrics.num_samples=4", "run=stopped"]) == 0
    (evaluated,) = map(json.loads, Path("stopped/evaluations.jsonl").read_text().splitlines())
    assert evaluated["step"] == 4 and 0 <= evaluated["value"] < 100


def test_a_method_that_compares_rows_refuses_microbatches(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(Path("run"), "drifting", "accumulate=2") == 2
    assert "accumulate=2 must be 1 with model=DriftStep, which compares the rows" in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["by_spread", "self_aligned"])
def test_a_killed_method_continues_and_is_reported(method: str, in_folder: Path) -> None:
    child = command_child(words(Path("killed"), method), in_folder)
    wait_for_step(child, Path("killed"), 3)
    child.kill()
    assert train(Path("killed"), method) == 0 and train(Path("whole"), method) == 0
    assert differences(*(final_state(Path(name)) for name in ("whole", "killed"))) == []
    assert main(["report", "killed", "--table", "table.md"]) == 0
    assert f"| {method} |" in Path("table.md").read_text()


def test_a_method_is_at_most_60_lines() -> None:
    """Those of its Python files and yaml files together, without empty ones."""
    lengths = {}
    for name in NAMES:
        defaults = yaml.safe_load((METHODS / "method" / f"{name}.yaml").read_text())["defaults"]
        chosen = [line for line in defaults if isinstance(line, dict)]
        own = [
            METHODS / key.removeprefix("override /") / f"{value}.yaml" for line in chosen for key, value in line.items()
        ]
        texts = [path.read_text() for path in (METHODS / "method" / f"{name}.yaml", *own) if path.is_file()]
        modules = {METHODS / f"{module}.py" for text in texts for module in re.findall(r"_target_: (\w+)\.", text)}
        texts += [path.read_text() for path in modules if path.is_file()]
        lengths[name] = sum(1 for text in texts for line in text.splitlines() if line.strip())
    assert {name: n for name, n in lengths.items() if n > 60} == {} and min(lengths.values()) > 10
