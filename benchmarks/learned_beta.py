"""What a learned timestep sampler adds to training: `python -m benchmarks.learned_beta`.

Turns of 40 optimizer steps, one lesson of the policy in each, against plain steps of the same network at T/B = 8, the
ratio at which Kim et al. train CIFAR-10 (T = 1000, B = 128). By counting, with a forward pass a third of a step:

    1 + (2 points/B + 2 |S| rewarded rows/B)/(3 * 40) + the policy's own work
"""

from __future__ import annotations

import argparse

from benchmarks.paired import ratio
from benchmarks.turns import turns

STEPS = 40  # one lesson, f_S
SETTINGS = {
    "digits, unet_tiny, T=1000, B=128": {
        "training": ["dataset=digits", "network=unet_tiny", "schedule.num_timesteps=1000", "batch_size=128"],
        "stride": 10,
    },
    # Pixels from a Gaussian: they lie in memory and their content costs nothing.
    "3 x 32 x 32, unet_small, T=128, B=16": {
        "training": [
            "dataset=gaussian",
            "dataset.source.channels=3",
            "dataset.source.image_size=32",
            "dataset.source.num_images=1024",
            "network=unet_small",
            "schedule.num_timesteps=128",
            "batch_size=16",
        ],
        "stride": 10,
    },
}


def samplers(stride: int) -> dict[str, list[str]]:
    """Name -> overrides; the first is the baseline. A stride of T/100 is that of the default at T = 1000."""
    return {
        "plain": ["sampler=uniform"],
        "learned_beta: every 10th timestep, a quarter of the rows": [
            "sampler=learned_beta",
            f"sampler.grid_stride={stride}",
        ],
        "learned_beta: all timesteps, all rows": [
            "sampler=learned_beta",
            "sampler.grid_stride=1",
            "sampler.reward_every=1",
        ],
        "learned_beta_released: with fresh noise and dropout": ["sampler=learned_beta_released"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.learned_beta", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=7, help="turns of each training (7)")
    parser.add_argument("--precision", default="32-true", help="32-true or bf16-mixed (32-true)")
    options = parser.parse_args()
    print("| setting | sampler | CPU seconds of 40 steps, over plain: median [lowest, highest] |\n| --- | --- | ---: |")
    for title, setting in SETTINGS.items():
        shared = [*setting["training"], f"precision={options.precision}", "gradient_clip=null"]
        trainings = {name: [*shared, *words] for name, words in samplers(setting["stride"]).items()}
        seconds = turns(trainings, STEPS, options.rounds)
        for name in list(trainings)[1:]:
            print(f"| {title} | {name} | {ratio(seconds[name], seconds['plain'])} |", flush=True)


if __name__ == "__main__":
    main()
