"""Writes `claims.values.csv` and `claims.curves.csv` from the analyses of the runs.

    python -m experiments.claims_measured RUNS ANALYSES

RUNS is the folder of the sweep, ANALYSES has a folder for each `analyze ... outdir=ANALYSES/NAME` of `claims.sh`. Each
function below returns one value per seed of the quantity that `claims.yaml` states, or per pair of seeds, where a
quantity compares two models; no seed is in two pairs.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from experiments.claims import CURVES, VALUES

PAIRS = ((0, 1), (2, 3), (4, 5))
Values = dict[str, float]  # seed, or pair of seeds -> value


class Measured:
    """The arrays of one analysis, its facts, and the models by method, seed and step."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "data.npz", allow_pickle=False) as data:
            self.data = {name: data[name] for name in data.files}
        content = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        self.facts: dict[str, Any] = content["facts"]
        self.models = [(model["run"], model["step"]) for model in content["protocol"]["models"]]

    def positions(self, method: str, step: int | None = None) -> dict[str, int]:
        """Seed -> position, of the models whose run is called METHOD-sSEED-HASH, at a step, in order."""
        found: dict[str, int] = {}
        for m, (run, at) in enumerate(self.models):
            match = re.fullmatch(rf"{re.escape(method)}-s(\d+)-\w+", run)
            if match and step in (None, at):
                found.setdefault(match[1], m)
        return found


class Claims:
    """One method for each claim, of the claim's name."""

    def __init__(self, analyses: Path) -> None:
        self.of = cache(lambda name: Measured(analyses / name))

    def _each(self, name: str, values: np.ndarray, method: str, step: int | None = None) -> Values:
        return {seed: float(values[m]) for seed, m in self.of(name).positions(method, step).items()}

    def loss_range(self) -> Values:
        mean = self.of("per_timestep").data["mean"][:, :, 0]
        return self._each("per_timestep", mean.max(1) / mean.min(1), "digits-uniform")

    def first_slot(self) -> Values:
        return self._each("slots", self.of("slots").data["edges"][:, 0, 1], "digits-uniform")

    def forgetting(self) -> Values:
        found = self.of("interdependence_slots")
        relative, shown = found.data["relative"], [slot - 1 for slot in found.facts["shown"]]
        others = [np.delete(relative[:, slot], slot, axis=1).mean(1) for slot in shown]
        return self._each("interdependence_slots", np.mean(others, axis=0), "digits-uniform")

    def late_hurts_early(self) -> Values:
        return self._each("interdependence", self.of("interdependence").data["relative"][:, -1, 0], "digits-uniform")

    def interdependence(self) -> Values:
        data = self.of("interdependence").data
        return self._each("interdependence", data["net"].mean(1) / data["before"].mean(1), "digits-uniform")

    def _replaced(self, name: str) -> np.ndarray:
        found = self.of("replacement")
        return found.data["psnr"][:, found.facts["sets"].index(name)].mean(1)

    def replacing_late_half(self) -> Values:
        gain = self._replaced("1 to 500") - self._replaced("500 to 1000")
        return self._each("replacement", gain, "photos-uniform-super_resolution")

    def replacing_10_100(self) -> Values:
        gain = self._replaced("10 to 100") - self._replaced("100 to 500")
        return self._each("replacement", gain, "photos-uniform-super_resolution")

    def hue(self) -> Values:
        error = self.of("replacement").data["hue_error"][:, 0].mean(1)
        eps, v = (self._each("replacement", error, f"photos-uniform-super_resolution{more}") for more in ("", "-v"))
        return {seed: eps[seed] / v[seed] for seed in eps.keys() & v.keys()}

    def _x0_losses(self, first: int, end: int) -> Values:
        found = self.of("prediction_ability")
        eps, x0 = (line["rows"] for line in found.facts["lines"][:2])  # in the order of the command
        inside = (found.data["timesteps"] >= first) & (found.data["timesteps"] < end)
        mean = np.log(found.data["mean"][:, inside]).mean(1)
        ratio = np.exp(mean[eps] - mean[x0])
        return {str(seed): float(value) for seed, value in enumerate(ratio)}

    def eps_good_early(self) -> Values:
        return self._x0_losses(0, 100)

    def x0_good_late(self) -> Values:
        return self._x0_losses(900, 1000)

    def _variance(self, method: str, key: str = "early_late") -> Values:
        return self._each("gradient_variance", self.of("gradient_variance").data[key], method)

    def variance_linear(self) -> Values:
        return self._variance("digits-uniform")

    def variance_cosine(self) -> Values:
        return self._variance("digits-uniform-cosine")

    def variance_quadratic(self) -> Values:
        return self._variance("digits-uniform-quadratic")

    def weighted_cosine(self) -> Values:
        return self._variance("digits-uniform-cosine", "early_late_weighted")

    def variance_persists(self) -> Values:
        name = "gradient_variance_250"
        ratio = self.of(name).data["early_late"]
        early, late = (self._each(name, ratio, "digits-uniform", step) for step in (250, 2000))
        return {seed: late[seed] / early[seed] for seed in early}

    def late_falls_faster(self) -> Values:
        found = self.of("per_timestep_250")
        mean, t = found.data["mean"][:, :, 0], found.data["timesteps"]
        early, late = (found.positions("digits-uniform", step) for step in (250, 2000))
        fall = {seed: mean[early[seed]] / mean[late[seed]] for seed in early}
        return {seed: float(ratio[t >= 500].mean() / ratio[t < 100].mean()) for seed, ratio in fall.items()}

    def selection(self) -> Values:
        found, values = self.of("selection"), {}
        runs = list(dict.fromkeys(run for run, _ in found.models))
        for r, run in enumerate(runs):
            on, whole = found.data["drop_on"][r, :, 0, 0], found.data["drop"][r]
            known = np.isfinite(on) & np.isfinite(whole)
            match = re.search(r"-s(\d+)-", run)
            assert match is not None, run
            values[match[1]] = float(np.corrcoef(on[known], whole[known])[0, 1])
        return values

    def _pairs(self, values: np.ndarray, method: str) -> Values:
        """Means over images of (N,N,M), of disjoint pairs of seeds."""
        at = self.of("consistency").positions(method)
        return {f"{a}-{b}": float(values[at[str(a)], at[str(b)]].mean()) for a, b in PAIRS}

    def consistency(self) -> Values:
        paired = self.of("consistency").data["paired"]
        eps, gan = self._pairs(paired, "digits-uniform"), self._pairs(paired, "digits-gan")
        return {pair: eps[pair] - gan[pair] for pair in eps}

    def _above_shuffled(self) -> np.ndarray:
        data = self.of("consistency").data
        return data["paired"] - (data["shuffled"] + data["shuffled"].transpose(1, 0, 2)) / 2

    def x0_inconsistent(self) -> Values:
        return self._pairs(self._above_shuffled(), "digits-uniform-x0")

    def consistency_structure(self) -> Values:
        found, above = self.of("consistency"), self._above_shuffled()
        # Both are called digits-uniform: the network is in the hash. Those of the U-ViT come after the U-Net's.
        names = [run for run, _ in found.models]
        unet = found.positions("digits-uniform")
        uvit = {seed: m for m, run in enumerate(names) if (seed := _seed(run)) and m not in unet.values()}
        return {seed: float(above[unet[seed], uvit[seed]].mean()) for seed in sorted(uvit)}

    def interpolation(self) -> Values:
        relative = {}
        for name, method in (("interpolation", "digits-uniform"), ("interpolation_gan", "digits-gan")):
            data = self.of(name).data
            ends = data["mean"][:, [int(np.flatnonzero(data["alpha"] == end)[0]) for end in (0, 1)]].max(1)
            seeds = list(self.of(name).positions(method))
            relative[name] = dict(zip(seeds, (data["barrier"] / ends).tolist(), strict=True))
        dm, gan = relative["interpolation"], relative["interpolation_gan"]
        return {seed: gan[seed] - dm[seed] for seed in dm}

    def hessian(self) -> Values:
        top = {
            method: self._each(name, self.of(name).data["largest"][:, 0], method)
            for name, method in (("hessian_eps", "digits-uniform"), ("hessian_gan", "digits-gan"))
        }
        return {seed: top["digits-gan"][seed] / value for seed, value in top["digits-uniform"].items()}

    def momentum_noise(self) -> Values:
        data = self.of("optimizer_noise").data
        beta1 = data["beta1"][:, 0].tolist()
        scale = data["noise_scale"][:, beta1.index(0.9)] / data["noise_scale"][:, beta1.index(0.4)]
        return self._each("optimizer_noise", scale, "digits-uniform")


def _seed(run: str) -> str:
    match = re.fullmatch(r"digits-uniform-s(\d+)-\w+", run)
    return match[1] if match else ""


def curves(runs: Path) -> Iterator[dict[str, Any]]:
    """The validation losses of every run, as it learned; a GAN has none."""
    for folder in sorted(path.parent for path in runs.glob("*/run.json")):
        config = json.loads((folder / "run.json").read_text(encoding="utf-8"))["config"]
        network = config["network"]["_target_"].rpartition(".")[2]
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            if "val/loss" in row:
                yield {"run": folder.name, "network": network, "step": row["step"], "val_loss": row["val/loss"]}


def main(runs: Path, analyses: Path) -> None:
    """Write both files."""
    claims = Claims(analyses)
    with open(VALUES, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["claim", "seed", "value"])
        for name in (name for name in vars(Claims) if not name.startswith("_")):
            writer.writerows([name, seed, f"{value:.6g}"] for seed, value in getattr(claims, name)().items())
    with open(CURVES, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["run", "network", "step", "val_loss"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(curves(runs))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
