"""What a training step costs where no hook is used, over the step of an earlier revision.

    python -m benchmarks.hooks REVISION

writes hooks.md. The earlier package is a git worktree in a temporary folder. One process imports both packages and
builds the same run with each. They take turns of one step: `training_step`, backward pass and optimizer, on one batch,
with one thread, in CPU seconds. The order within a round alternates.

    ratio = median over rounds of  seconds(this package)/seconds(that revision)

with the 95 % interval of a median, of order statistics by a binomial distribution. A second run of this package takes
turns as well: its ratio to the first one, which is 1, says what the measurement can tell apart.
"""

from __future__ import annotations

import argparse
import datetime
import math
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve()
PAGE, OURS = HERE.with_suffix(".md"), HERE.parent.parent
WARM_UP = 20  # rounds that are not measured
RUNS = {
    "the default network, 16 images": ["batch_size=16"],
    "a network of 8 channels, 16 images": ["batch_size=16", "network.base_channels=8"],
}
QUIET = ["base=ddpm", "trainer.accelerator=cpu", "precision=32-true"]
Step = Callable[[], None]


@contextmanager
def earlier(revision: str) -> Iterator[Path]:
    """The tree of a revision, in a temporary git worktree."""
    with tempfile.TemporaryDirectory() as folder:
        git, tree = ["git", "-C", str(OURS), "worktree"], Path(folder) / "tree"
        subprocess.run([*git, "add", "--detach", "--force", str(tree), revision], check=True, capture_output=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True, capture_output=True)


def steps(tree: Path, count: int) -> list[list[Step]]:
    """By run, `count` trainings with the package in `tree`, which is imported beside any other."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("diffusion_lab", "hydra_plugins")]:
        del sys.modules[name]
    sys.path.insert(0, str(tree))
    from diffusion_lab.cli.build import build_run
    from diffusion_lab.cli.config import compose_train

    found = []
    for overrides in RUNS.values():
        with tempfile.TemporaryDirectory() as folder:
            cfg = compose_train([*QUIET, *overrides], Path(folder) / "run")
            found.append([_step(build_run(cfg, {}).module, cfg.batch_size) for _ in range(count)])
    sys.path.remove(str(tree))
    return found


def _step(module: Any, rows: int) -> Step:
    optimizer = module.configure_optimizers()
    batch = {"image": torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(0))}
    batch |= {"index": torch.arange(rows)} if hasattr(module, "_index") else {}
    module._tick = lambda *_: None

    def step() -> None:
        module._position = module._position._replace(step=module._position.step + 1)
        module.training_step(dict(batch), 0)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measured(then: Step, now: Step, again: Step, rounds: int) -> list[str]:
    """The cells of a run: milliseconds then, and two ratios."""
    of = [then, now, again]
    seconds: list[list[float]] = [[], [], []]
    for k in range(WARM_UP + rounds):
        for i in [(k + j) % 3 for j in range(3)][:: 1 if k % 2 else -1]:
            start = time.process_time()
            of[i]()
            seconds[i].append(time.process_time() - start)
    a, b, c = (values[WARM_UP:] for values in seconds)
    return [f"{1e3 * statistics.median(a):.3g} ms", _ratio(b, a), _ratio(c, b)]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    values = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    half = 0.98 * math.sqrt(len(values))  # 1.96 standard deviations of a binomial number
    low, high = (values[round(len(values) / 2 + sign * half) - (sign < 0)] for sign in (-1, 1))
    return f"{statistics.median(values):.4f} [{low:.4f}, {high:.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hooks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("revision", help="of git, whose package is compared with this one")
    parser.add_argument("--rounds", type=int, default=700, help="steps of each training; default 700")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # so that the worktree is removed
    torch.set_num_threads(1)
    with earlier(options.revision) as tree:
        then, now = steps(tree, 1), steps(OURS, 2)
        rows = [[title, *measured(*a, *b, rounds=options.rounds)] for title, a, b in zip(RUNS, then, now, strict=True)]
    table = [["run", "step then", "ratio now", "ratio of two equal ones"], ["---", "---:", "---:", "---:"], *rows]
    cpu = next((line.split(": ")[1] for line in open("/proc/cpuinfo") if "model name" in line), platform.processor())
    title, _, text = (__doc__ or "").partition("\n\n")
    head = (
        f"{datetime.date.today()}, {cpu.strip()}, one thread, PyTorch {torch.__version__}, REVISION {options.revision}:"
    )
    lines = "\n".join(f"| {' | '.join(row)} |" for row in table)
    PAGE.write_text("\n\n".join([f"# {title[:-1]}", head, text.strip("\n"), lines]) + "\n")
    print(lines)


if __name__ == "__main__":
    main()
