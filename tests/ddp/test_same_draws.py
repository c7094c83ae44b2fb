"""What is drawn does not depend on how the global batch is split, and methods with one seed share images and noise."""

import hashlib
import json

import pytest

from tests.harness import configuration, train_child

pytestmark = pytest.mark.slow
SPLITS = {
    "one process": [],
    "accumulation": ["accumulate=4"],
    "two processes": ["trainer.devices=2", "trainer.strategy=ddp_fork"],
    "two processes, accumulation": ["trainer.devices=2", "trainer.strategy=ddp_fork", "accumulate=2"],
}


def recorded(folder, *overrides):
    """(step, row) -> (image, flip included, noise, t) of a run, each as a short digest or a number."""
    cfg = configuration(folder, "max_steps=6", "dataset.flip=true", "~callbacks.validation", *overrides)

    def spy():
        from diffusion_lab.training import DiffusionModule

        original = DiffusionModule.training_step

        def training_step(self, batch, batch_idx):
            result = original(self, batch, batch_idx)
            position, record = self.position, result["record"]
            eps = self.noise(record.x0)
            first = position.rows(len(record.t)).start
            with open(folder / f"rows-{position.rank}.jsonl", "a") as file:
                for i, t in enumerate(record.t.tolist()):
                    x, e = (hashlib.sha256(v[i].numpy().tobytes()).hexdigest()[:12] for v in (record.x0, eps))
                    file.write(json.dumps([position.step, first + i, x, e, t]) + "\n")
            return result

        DiffusionModule.training_step = training_step

    train_child(cfg, spy).succeed()
    rows = {}
    for path in sorted(folder.glob("rows-*.jsonl")):
        for line in path.read_text().splitlines():
            step, row, *seen = json.loads(line)
            assert (step, row) not in rows, "a row was seen twice"
            rows[step, row] = tuple(seen)
    assert len(rows) == 6 * 16
    return rows


@pytest.mark.parametrize(
    "arguments",
    [
        ["sampler=stratified"],
        ["sampler=loss_second_moment", "sampler.history_per_timestep=1"],
        ["sampler=infonoise", "sampler.warmup_steps=1", "sampler.every=2"],
        ["sampler=learned_beta", "sampler/rewards=shuffled", "sampler.every=2", "sampler.hidden=8"],
    ],
)
def test_every_split_sees_the_same_rows(arguments, tmp_path):
    whole = recorded(tmp_path / "one" / "run", *arguments)
    # The last split is made of the two before it.
    for name, split in list(SPLITS.items())[1 if arguments == ["sampler=stratified"] else -1 :]:
        rows = recorded(tmp_path / name.replace(" ", "-") / "run", *arguments, *split)
        assert rows == whole, name


def test_two_methods_see_the_same_images_and_noise_and_other_timesteps_and_another_seed_sees_others(tmp_path):
    one = recorded(tmp_path / "uniform" / "run", "sampler=uniform")
    two = recorded(tmp_path / "logit" / "run", "sampler=logit_normal")
    assert {k: v[:2] for k, v in one.items()} == {k: v[:2] for k, v in two.items()}
    assert sum(one[k][2] != two[k][2] for k in one) > 80
    other = recorded(tmp_path / "seed" / "run", "sampler=uniform", "seed=1")
    assert not any(one[k][1] == other[k][1] for k in one)
