"""A tiny run of `trainer=fsdp` in processes of its own: python -m tests.ddp.sharded_run FOLDER key=value ...

Each process writes to held-RANK.json beside FOLDER how many weights it holds, and how many there are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from diffusion_lab.cli.commands.train import run
from diffusion_lab.training import ShardedStrategy
from tests.harness import configuration


def watch(folder: Path) -> None:
    """Write what every process holds, once it is sharded."""
    original = ShardedStrategy.setup

    def setup(self, trainer) -> None:
        original(self, trainer)
        held = [(p.to_local().numel(), p.numel()) for p in self.model.parameters()]
        (folder / f"held-{self.global_rank}.json").write_text(json.dumps([sum(n) for n in zip(*held, strict=True)]))

    ShardedStrategy.setup = setup


if __name__ == "__main__":
    watch(Path(sys.argv[1]).parent)
    run(configuration(Path(sys.argv[1]), *sys.argv[2:]))
