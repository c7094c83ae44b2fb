"""The cost of a step of every method over one of plain DDPM: `python -m benchmarks.methods`.

Digits, with the network and the batch of experiment=methods_digits; turns of 40 steps, which include one policy update
of the learned samplers. `variance` measures gradients 20 times in a run, with 160 backward passes of single images, so
its ratio is that of a run of 240 steps.
"""

from __future__ import annotations

import argparse

from benchmarks.paired import ratio
from benchmarks.turns import turns
from diffusion_lab.cli.config import conf_dir

STEPS = 40
AT_A_TIME = 4  # methods measured together with ddpm; each is a process with its own libraries
TRAINING = ["dataset=digits", "network=unet_tiny", "batch_size=128"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.methods", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of each training (5)")
    options = parser.parse_args()
    names = sorted(path.stem for path in (conf_dir() / "method").glob("*.yaml") if path.stem != "ddpm")
    print("| method | CPU seconds of 40 steps, over ddpm: median [lowest, highest] |\n| --- | ---: |")
    for first in range(0, len(names), AT_A_TIME):
        some = ["ddpm", *names[first : first + AT_A_TIME]]
        seconds = turns({name: [*TRAINING, f"method={name}"] for name in some}, STEPS, options.rounds)
        for name in some[1:]:
            print(f"| {name} | {ratio(seconds[name], seconds['ddpm'])} |", flush=True)


if __name__ == "__main__":
    main()
