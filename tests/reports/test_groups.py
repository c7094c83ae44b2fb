"""What is averaged, and what it is called."""

import json

import pytest

from diffusion_lab.reports import group_runs, read_runs, summarise, unnamed_differences
from diffusion_lab.reports.comparison.differences import short
from diffusion_lab.reports.comparison.labels import matching
from tests.reports.synthetic import METHODS, write_run


def groups_of(path, by=None):
    return group_runs(read_runs(path).runs, by)


def test_seeds_are_replicates_and_methods_are_groups(sweep):
    groups = groups_of(sweep)
    assert [group.label for group in groups] == list(METHODS)
    assert [sorted(run.seed for run in group.done) for group in groups] == [[0, 1]] * 4


def test_different_configurations_are_never_averaged(tmp_path):
    values = {}
    for k, rate in enumerate((1e-4, 2e-4)):
        for seed in range(2):
            optimizer = {"_target_": "torch.optim.Adam", "lr": rate}
            last = write_run(tmp_path / f"{k}-{seed}", "uniform", 2 * seed + k, optimizer=optimizer, steps=250)
            values.setdefault(rate, []).append(last["metrics/fd1k_digits"])
    groups = groups_of(tmp_path)
    assert {group.label for group in groups} == {"uniform lr=0.0001", "uniform lr=0.0002"}
    rows = {row.group.config["optimizer"]["lr"]: row.metric for row in summarise(groups, "fd1k_digits")}
    assert {rate: row.mean for rate, row in rows.items()} == {k: pytest.approx(sum(v) / 2) for k, v in values.items()}


def test_a_part_is_named_and_its_arguments_only_where_the_part_is_the_same(tmp_path):
    samplers = {
        "a": METHODS["logit_normal"],
        "b": METHODS["logit_normal"] | {"std": 0.5},
        "c": METHODS["uniform"],
    }
    for name, sampler in samplers.items():
        method = "uniform" if name == "c" else "logit_normal"
        write_run(tmp_path / name, method, 0, steps=100, sampler=sampler)
    # The copy of the sampler inside the callbacks is not told a second time.
    assert {group.label: group.differences for group in groups_of(tmp_path)} == {
        "uniform": {"sampler": "uniform"},
        "logit_normal std=1.0": {"sampler": "logit_normal", "sampler.std": "1.0"},
        "logit_normal std=0.5": {"sampler": "logit_normal", "sampler.std": "0.5"},
    }


def test_what_a_group_has_by_default_is_not_said(tmp_path):
    for k, (rate, typed) in enumerate(((1e-4, []), (2e-4, ["optimizer.lr=2e-4"]))):
        write_run(tmp_path / str(k), "uniform", 0, steps=50, optimizer={"_target_": "torch.optim.Adam", "lr": rate})
        record = json.loads((tmp_path / str(k) / "run.json").read_text())
        (tmp_path / str(k) / "run.json").write_text(json.dumps(record | {"overrides": ["seed=0", *typed]}))
    assert {group.label for group in groups_of(tmp_path)} == {"uniform", "uniform lr=0.0002"}


def test_a_part_is_called_by_the_option_that_was_typed(tmp_path):
    for k, (option, final) in enumerate(((None, 1.0), ("linear_control", 0.2), ("cosine", 0.1))):
        annealing = {"_target_": "x.Constant" if option is None else "x.ConstantBeta1", "final": final}
        write_run(tmp_path / str(k), "uniform", 0, steps=50, annealing=annealing)
        record = json.loads((tmp_path / str(k) / "run.json").read_text())
        typed = [f"annealing={option}"] if option else []
        (tmp_path / str(k) / "run.json").write_text(json.dumps(record | {"overrides": ["seed=0", *typed]}))
    labels = {group.label.partition(" final")[0] for group in groups_of(tmp_path)}
    assert labels == {"uniform", "uniform annealing=linear_control", "uniform annealing=cosine"}


def test_equal_last_parts_keep_the_whole_key(tmp_path):
    for k, gamma in enumerate((1.0, 2.0)):
        weighting = {"_target_": "x.MinSNR", "gamma": gamma}
        write_run(tmp_path / str(k), "uniform", 0, steps=50, weighting=weighting, optimizer={"gamma": gamma + 5})
    assert groups_of(tmp_path)[0].label == "uniform weighting.gamma=1.0 optimizer.gamma=6.0"


def test_a_key_is_whole_where_a_key_at_the_top_has_its_last_part(tmp_path):
    for k, size in enumerate((64, 128)):
        callbacks = {"generation": {"evaluation": {"batch_size": size}}}
        write_run(tmp_path / str(k), "uniform", 0, steps=50, batch_size=16, callbacks=callbacks)
    labels = {group.label for group in groups_of(tmp_path)}
    assert labels == {f"uniform callbacks.generation.evaluation.batch_size={size}" for size in (64, 128)}


def test_how_often_something_is_recorded_names_a_row_only_if_nothing_else_does(tmp_path):
    for k, (rate, every) in enumerate(((1e-4, 50), (2e-4, 100))):
        optimizer = {"_target_": "torch.optim.Adam", "lr": rate}
        write_run(tmp_path / str(k), "uniform", 0, steps=50, optimizer=optimizer, log_every=every, snapshot_every=every)
    groups = groups_of(tmp_path)
    assert {group.label for group in groups} == {"uniform lr=0.0001", "uniform lr=0.0002"}
    assert [one.key for one in unnamed_differences(groups[1], groups[0])] == ["optimizer.lr"]
    write_run(tmp_path / "c", "uniform", 0, steps=50, optimizer=optimizer, log_every=7, snapshot_every=every)
    assert len({group.label for group in groups_of(tmp_path)}) == 3


def test_the_seed_of_a_part_names_no_row_where_the_part_has_one_of_its_own(tmp_path):
    """Row a begins with seed 0, which the validation has in all runs; row b with seed 1."""
    for seed, rate in ((0, 1e-4), (1, 2e-4)):
        optimizer, callbacks = {"_target_": "torch.optim.Adam", "lr": rate}, {"validation": {"seed": 0}}
        write_run(tmp_path / str(seed), "uniform", seed, steps=50, optimizer=optimizer, callbacks=callbacks)
    assert {group.label for group in groups_of(tmp_path)} == {"uniform lr=0.0001", "uniform lr=0.0002"}


def test_rows_are_named_by_the_chosen_key_and_still_not_merged(tmp_path):
    for steps in (10, 50):
        for method in ("uniform", "logit_normal"):
            solver = {"_target_": "diffusion_lab.solvers.DDIM", "steps": steps}
            write_run(tmp_path / f"{steps}{method}", method, 0, steps=50, solver=solver)
    labels = {group.label for group in groups_of(tmp_path, "solver.steps")}
    assert labels == {f"{steps} sampler={method}" for steps in (10, 50) for method in ("uniform", "logit_normal")}
    with pytest.raises(ValueError, match="by=solver.stops must be a key of the configuration"):
        groups_of(tmp_path, "solver.stops")


def test_a_seed_counts_once(tmp_path):
    write_run(tmp_path / "a", "uniform", 0, steps=100, result=None)
    write_run(tmp_path / "b", "uniform", 0, steps=250)
    (group,) = groups_of(tmp_path)
    assert [run.name for run in group.done] == ["b"]
    assert [run.name for run in group.duplicates] == ["a"]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"_target_": "a.b.LogitNormal"}, "logit_normal"),
        ({"_target_": "a.MinSNR"}, "min_snr"),
        ({"_target_": "a.UNet"}, "unet"),
        ({"_target_": "a.EDMLoss"}, "edm_loss"),
        ({"_target_": "a.linear"}, "linear"),
        (None, "null"),
        (True, "true"),
        ([1, 2], "[1,2]"),
        ("50", "50"),
    ],
)
def test_short_names(value, name):
    assert short(value) == name


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ddpm", ["ddpm"]),  # exactly, although another has the word
        ("precision=bf16-mixed", ["ddpm precision=bf16-mixed"]),
        ("bf16", []),  # half a word
        ("v", ["uniform-v-min_snr", "logit_normal-v"]),
        ("uniform", ["uniform-v-min_snr"]),
        ("", []),
    ],
)
def test_a_row_is_named_by_words_that_it_alone_has(name: str, found: list[str]) -> None:
    assert matching(name, ["ddpm", "ddpm precision=bf16-mixed", "uniform-v-min_snr", "logit_normal-v"]) == found
