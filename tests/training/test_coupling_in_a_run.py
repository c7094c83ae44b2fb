"""Couplings in whole runs: the loss uses the paired noise, on one process and two; and one as a user's own file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from diffusion_lab.cli.main import main
from diffusion_lab.diffusion import MinibatchOT
from diffusion_lab.training import DiffusionModule
from tests.harness import Child, configuration, train_child

OWN = {
    "own_coupling.py": """
from diffusion_lab.diffusion import Coupling
from scipy.optimize import linear_sum_assignment
import torch

class Nearest(Coupling):
    def order(self, x0, eps):
        cost = -(x0.flatten(1) @ eps.flatten(1).T)
        return torch.from_numpy(linear_sum_assignment(cost.double().numpy())[1])
""",
    "my_conf/coupling/mine.yaml": "_target_: own_coupling.Nearest\n",
}
SMALL = ("max_steps=3", "batch_size=8", "log_every=1", "snapshot_every=0", "trainer=cpu", "~callbacks.generation")
SMALL += ("base=ddpm", "solver.steps=2", "metrics.names=[sample_variance]", "network.base_channels=8")


def rows(folder: Path, *overrides: str) -> dict[tuple[int, int], tuple[list[float], ...]]:
    """(step, row) -> (image, label, noise the loss was given) of a run."""

    def spy() -> None:
        step_of, noise_of = DiffusionModule.training_step, DiffusionModule.noises

        def noises(self, x0):
            eps, at_input = noise_of(self, x0)
            self.seen = eps if at_input is None else at_input
            return eps, at_input

        def training_step(self, batch, batch_idx):
            result = step_of(self, batch, batch_idx)
            record, first = result["record"], self.position.rows(len(batch["image"])).start
            with open(folder / f"rows-{self.position.rank}.jsonl", "a") as file:
                for i in range(len(record.t)):
                    seen = [v[i].flatten().tolist() for v in (record.x0, batch["label"], self.seen)]
                    file.write(json.dumps([self.position.step, first + i, *seen]) + "\n")
            return result

        DiffusionModule.noises, DiffusionModule.training_step = noises, training_step

    train_child(configuration(folder, "max_steps=2", "dataset.conditional=true", *overrides), spy).succeed()
    lines = [json.loads(line) for path in folder.glob("rows-*.jsonl") for line in path.read_text().splitlines()]
    return {(step, row): tuple(seen) for step, row, *seen in lines}


@pytest.mark.slow
def test_one_process_and_two_pair_the_same_noise_with_the_same_images(tmp_path: Path) -> None:
    two = ["trainer.devices=2", "trainer.strategy=ddp_fork"]
    ot = "coupling=minibatch_ot"
    runs = {
        "plain": rows(tmp_path / "plain"),
        "one": rows(tmp_path / "one", ot),
        "two": rows(tmp_path / "two", ot, *two),
    }
    assert runs["one"] == runs["two"] != runs["plain"] and len(runs["one"]) == 2 * 16
    for step in range(2):
        plain, paired = ([run[step, row] for row in range(16)] for run in (runs["plain"], runs["one"]))
        assert [row[:2] for row in plain] == [row[:2] for row in paired]  # images and labels stay where they are
        x0, eps = (torch.tensor([row[i] for row in plain]) for i in (0, 2))
        given = torch.tensor([row[2] for row in paired])
        assert torch.equal(given, eps[MinibatchOT().order(x0, eps)]) and not torch.equal(given, eps)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["offset", "input_perturbation"])
def test_microbatches_and_two_processes_train_with_the_noise_of_one(name: str, tmp_path: Path) -> None:
    two = ["trainer.devices=2", "trainer.strategy=ddp_fork"]
    runs = {
        "plain": rows(tmp_path / "plain"),
        "one": rows(tmp_path / "one", f"coupling={name}"),
        "two": rows(tmp_path / "two", f"coupling={name}", *two),
        "micro": rows(tmp_path / "micro", f"coupling={name}", "accumulate=2"),
    }
    assert runs["one"] == runs["two"] == runs["micro"] and len(runs["one"]) == 2 * 16
    assert runs["one"] != runs["plain"]


def test_microbatches_are_refused(capsys: pytest.CaptureFixture[str], in_folder: Path) -> None:
    code = main(["train", "coupling=minibatch_ot", "accumulate=2", *SMALL])
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert code == 2 and "accumulate=2 must be 1 with coupling=minibatch_ot" in line


@pytest.mark.slow
def test_a_coupling_from_outside_the_package_trains_as_that_inside(tmp_path: Path) -> None:
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def work() -> None:
        os.chdir(tmp_path)
        code = main(["train", "--config-dir", "my_conf", "coupling=mine", *SMALL, "paths.root=own"])
        code = code or main(["train", "coupling=minibatch_ot", *SMALL, "paths.root=inside"])
        raise SystemExit(code or main(["train", *SMALL, "paths.root=plain"]))

    Child(work, tmp_path / "log").succeed()
    own, inside, plain = (_losses(tmp_path / root) for root in ("own", "inside", "plain"))
    assert own == inside != plain and len(own) == 3


def _losses(root: Path) -> list[float]:
    (run,) = root.iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line]
