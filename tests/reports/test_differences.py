"""What a row says beside the baseline."""

import json
from dataclasses import replace

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli import run_config_reader
from diffusion_lab.cli.config import (
    choices_of,
    compose_train,
    conf_dir,
    group_hash,
    method_name,
    plain,
    register_resolvers,
)
from diffusion_lab.cli.run_config_reader import read_run_config
from diffusion_lab.reports import RunConfig, compare, differences, group_runs, read_runs, unnamed_differences
from diffusion_lab.reports.comparison.differences import changed, read_config_alone, short
from diffusion_lab.reports.pages.files import latex, markdown
from tests.reports.synthetic import write_run


def reading(config, expected=None, options=None, named=None):
    return RunConfig(config, config | (expected or {}), options or {}, named or options or {})


def said(own, base):
    return [str(one) for one in differences(own, base)]


def test_what_both_names_imply_is_not_said():
    own, base = reading({"sampler": {"_target_": "a.A"}}), reading({"sampler": {"_target_": "a.B"}})
    assert said(own, base) == []


def test_what_deviates_in_either_row_is_said_where_it_differs():
    base = reading({"lr": 1, "width": 16, "steps": 5}, {"width": 32, "steps": 9})
    own = reading({"lr": 2, "width": 16, "steps": 9}, {"lr": 1})
    # width deviates in one of them but is equal; lr deviates in the row, steps in the baseline
    assert said(own, base) == ["lr=2 (baseline 1)", "steps=9 (baseline 5)"]


def test_an_option_is_said_by_its_name():
    own = reading({"schedule": {"s": 1}}, {}, {"schedule": "cosine"}, {"schedule": "linear"})
    base = reading({"schedule": {"s": 2}}, {}, {"schedule": "linear"})
    assert said(own, base) == ["schedule=cosine (baseline linear)"]
    same = reading({"schedule": {"s": 2}}, {}, {"schedule": "cosine"}, {"schedule": "linear"})
    assert said(same, base) == []  # another word for the same numbers


def test_without_knowledge_of_the_options_everything_is_said_once():
    own = RunConfig({"batch_size": 1, "dataset": {"batch_size": 1}, "flip": True, "clip": True})
    base = RunConfig({"batch_size": 2, "dataset": {"batch_size": 2}, "flip": False, "clip": False})
    assert said(own, base) == ["batch_size=1 (baseline 2)", "flip=true (baseline false)", "clip=true (baseline false)"]


def test_of_different_parts_the_part_is_named():
    one = {"sampler": {"_target_": "a.A", "std": 1}, "solver": {"_target_": "a.S", "steps": 3}}
    other = {"sampler": {"_target_": "a.B"}, "solver": {"_target_": "a.S", "steps": 4}}
    assert changed(one, other) == ["sampler", "solver.steps"] and changed(one, one) == []


def make(folder, *overrides):
    """A run folder with the configuration that these overrides compose; nothing is trained."""
    cfg = compose_train(overrides, folder)
    folder.mkdir()
    info = {"method": method_name(cfg), "seed": cfg.seed, "overrides": list(overrides), "group_hash": group_hash(cfg)}
    info["choices"] = {key: value for key, value in choices_of(cfg).items() if not key.startswith("hydra/")}
    info["config"] = plain(cfg)
    (folder / "run.json").write_text(json.dumps(info))
    return folder


def test_confounders_of_real_configurations(tmp_path):
    rows = {
        "uniform": ["base=ddpm", "sampler=uniform", "optimizer.lr=1e-4"],
        "logit_normal": ["base=ddpm", "sampler=logit_normal", "optimizer.lr=1e-2", "network.base_channels=24"],
        "speed": ["method=speed", "optimizer.lr=1e-4"],
        "iddpm": ["method=iddpm", "optimizer.lr=1e-4", "batch_size=32", "max_steps=7"],
        "p2": ["method=p2", "schedule=cosine", "optimizer.lr=1e-4"],
        "mdlrc": ["method=mdlrc", "sampler=logit_normal", "sampler.std=0.5", "optimizer.lr=1e-4"],
        "clts": ["method=clts", "optimizer.lr=1e-4", "callbacks.ema=null", "gradient_clip=null"],
    }
    for name, overrides in rows.items():
        make(tmp_path / name, "seed=1", *overrides)
    groups = {group.label: group for group in group_runs(read_runs(tmp_path).runs, read=read_run_config)}
    found = {
        name: [(d.key, d.own) for d in unnamed_differences(group, groups["uniform"])] for name, group in groups.items()
    }
    assert found == {
        "uniform": [],
        "logit_normal": [("network.base_channels", "24"), ("optimizer.lr", "0.01")],
        "speed": [],
        "iddpm": [("max_steps", "7"), ("batch_size", "32")],
        "p2": [("schedule", "cosine")],
        "mdlrc": [("sampler", "logit_normal"), ("sampler.std", "0.5")],
        "clts": [("gradient_clip", "null"), ("callbacks.ema", "null")],
    }


def own_sampler(folder, name, *overrides, **arguments):
    """A run with a sampler of the user's own, `late_start.LateStart`, from a yaml file NAME that is not here."""
    make(folder, "sampler=logit_normal", *overrides)
    info = json.loads((folder / "run.json").read_text())
    node = {"_target_": "late_start.LateStart", "num_timesteps": 1000, **arguments}
    info["choices"]["sampler"] = info["method"] = name
    info["config"]["sampler"] = info["config"]["callbacks"]["timestep_sampling"]["sampler"] = node
    info["overrides"] = [f"sampler={name}", *overrides, *(f"sampler.{key}={value}" for key, value in arguments.items())]
    info["group_hash"] = json.dumps([info["choices"], info["config"] | {"seed": 0, "paths": 0}])
    (folder / "run.json").write_text(json.dumps(info))


def notes(folder, baseline=0):
    groups = group_runs(read_runs(folder).runs, read=read_run_config)
    found = {group.label: [str(one) for one in unnamed_differences(group, groups[baseline])] for group in groups}
    assert found.pop(groups[baseline].label) == []
    return found


def test_a_part_of_the_users_own_makes_no_difference_of_what_the_names_say(tmp_path):
    make(tmp_path / "a", "sampler=uniform")
    make(tmp_path / "b", "sampler=logit_normal")
    own_sampler(tmp_path / "c", "late")
    make(tmp_path / "d", "method=speed")
    for baseline, name in enumerate(["uniform", "logit_normal", "late"]):
        found = notes(tmp_path, baseline)
        assert [label for label in found if label != "speed" and found[label]] == [], name


def test_what_comes_with_a_part_that_is_in_the_name_is_no_difference(tmp_path):
    make(tmp_path / "a", "sampler=uniform")
    make(tmp_path / "b", "sampler=stratified", "log_every=7")
    make(tmp_path / "c", "sampler=stratified", "sampler@sampler.base=logit_normal")
    assert list(notes(tmp_path).values()) == [[], ["sampler.base=logit_normal (baseline none)"]]
    a, b, _ = group_runs(read_runs(tmp_path).runs, read=read_run_config)
    whole = differences(*(replace(group.run_config, named={}) for group in (b, a)))  # as `compare` lists them
    assert [str(one) for one in whole] == ["sampler=stratified (baseline uniform)"]


def test_what_differs_beside_a_part_of_the_users_own_is_said(tmp_path):
    make(tmp_path / "a", "sampler=uniform")
    own_sampler(tmp_path / "b", "late", "optimizer.lr=1e-2", "schedule=linear")
    own_sampler(tmp_path / "c", "early", start=0.3)
    found = notes(tmp_path)
    assert found["late"] == ["schedule=linear (baseline cosine)", "optimizer.lr=0.01 (baseline 0.0002)"]
    assert found["early"] == ["sampler.start=0.3 (baseline none)"]


def test_two_editions_of_one_part_of_the_users_own_are_a_difference(tmp_path):
    make(tmp_path / "a", "sampler=uniform")
    own_sampler(tmp_path / "b", "late", start=0.1)
    own_sampler(tmp_path / "c", "late", start=0.2)
    for folder in ("b", "c"):  # nothing of it was typed: the yaml file was edited between the runs
        info = json.loads((tmp_path / folder / "run.json").read_text())
        (tmp_path / folder / "run.json").write_text(json.dumps(info | {"overrides": ["sampler=late"]}))
    groups = group_runs(read_runs(tmp_path).runs, read=read_run_config)
    assert [str(one) for one in unnamed_differences(groups[2], groups[1])] == ["sampler.start=0.2 (baseline 0.1)"]


def test_a_method_that_is_not_known_here_says_everything(tmp_path):
    make(tmp_path / "a", "sampler=uniform")
    own_sampler(tmp_path / "b", "late", "optimizer.lr=1e-2")
    info = json.loads((tmp_path / "b" / "run.json").read_text())
    info["choices"]["method"] = info["method"] = "mine"
    (tmp_path / "b" / "run.json").write_text(json.dumps(info))
    (found,) = notes(tmp_path).values()
    assert "optimizer.lr=0.01 (baseline 0.0002)" in found and "sampler=late (baseline uniform)" in found


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """run.json of a run of the defaults."""
    return json.loads((make(tmp_path_factory.mktemp("defaults") / "run") / "run.json").read_text())


@pytest.mark.parametrize("group", ["sampler", "network", "method"])
def test_a_part_is_named_by_what_is_typed_for_it(group, record, tmp_path):
    """In rows, in columns of settings and in what differs, of every option: its yaml file is the part of a run."""
    files = sorted((conf_dir() / group).glob("*.yaml"))
    for file in files:
        choices, config = record["choices"] | {group: file.stem}, dict(record["config"])
        if group != "method":
            content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
            config[group] = {"_target_": "a.NamedOtherwise"} | content  # one that is another's has no class of its own
            config["callbacks"] = config["callbacks"] | {"further": {group: config[group]}}  # as a reference leaves it
        method = file.stem if group == "method" else "uniform"
        own = {"choices": choices, "config": config, "method": method, "group_hash": file.stem}
        (tmp_path / file.stem).mkdir()
        (tmp_path / file.stem / "run.json").write_text(json.dumps(record | own))
    groups = group_runs(read_runs(tmp_path).runs, None if group == "method" else group)
    assert sorted(one.name for one in groups) == [file.stem for file in files] and len(files) > 15
    for one in groups if group != "method" else ():
        typed = one.runs[0].info["choices"][group]
        assert one.word(group) == one.label == typed and one.differences.get(group, typed) == typed
        assert short(one.run_config.config["callbacks"]["further"][group], one.run_config.names) == typed


def test_the_options_that_the_readings_compose_are_named_as_typed(tmp_path):
    for name in ("method=speed", "network=unet_small", "sampler=infonoise"):
        make(tmp_path / name, name)
    groups = group_runs(read_runs(tmp_path).runs, read=read_run_config)
    assert [group.label for group in groups] == ["speed", "logit_normal-v-min_snr", "infonoise-v-min_snr"]
    assert [group.word("network") for group in groups] == ["unet_tiny", "unet_small", "unet_tiny"]
    by_sampler = group_runs(read_runs(tmp_path).runs, "sampler", read_run_config)
    assert [group.name for group in by_sampler] == ["speed", "logit_normal", "infonoise"]


@pytest.mark.parametrize(
    "chosen", [{"sampler": "mode", "weighting": "p2"}, {"sampler": "stratified"}, {"task": "gan"}], ids=str
)
def test_the_options_of_a_name_are_those_that_hydra_composes(chosen):
    register_resolvers()
    named_by = {"base": "ddpm", "method": None}
    alone = run_config_reader._compose(("base=ddpm",))[1]
    whole = run_config_reader._composed(("base=ddpm", *(f"{group}={option}" for group, option in chosen.items())))[1]
    assert run_config_reader._options(named_by, alone, chosen) == whole != alone


def test_a_part_whose_class_was_typed_or_set_is_not_named_by_its_option(tmp_path):
    """A row of a gate by pixel was called `granularity=sample`, as its group's option is."""
    mixed, key = "prediction=mixed", "prediction.granularity._target_"
    for place, words in {
        "a": (mixed,),
        "b": (mixed, f"{key}=diffusion_lab.diffusion.PerPixel"),
        "c": (mixed, f"{key}=diffusion_lab.diffusion.PerSample"),
    }.items():
        make(tmp_path / place, *words, "sampler=uniform")
    path = tmp_path / "c" / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"overrides": [mixed], "group_hash": "c"}))  # as a preset may set it
    record["config"]["prediction"]["granularity"]["_target_"] = "diffusion_lab.diffusion.PerBatch"
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "run.json").write_text(json.dumps(record | {"overrides": [mixed], "group_hash": "d"}))
    for read in (read_run_config, read_config_alone):
        groups = group_runs(read_runs(tmp_path).runs, read=read)
        found = {group.runs[0].folder.name: group.said.get("prediction.granularity") for group in groups}
        assert found == {"a": "per_sample", "b": "per_pixel", "c": "per_sample", "d": "per_batch"}
    one, other = (read_run_config(group.runs[0]) for group in groups if group.runs[0].folder.name in "ad")
    assert "prediction.granularity=per_batch (baseline per_sample)" in map(str, differences(other, one))
    typed = next(group for group in groups if group.runs[0].folder.name == "b")
    assert typed.word("prediction.granularity") == "per_pixel"


def test_a_class_is_named_as_well_as_can_be_where_no_option_is_recorded():
    names = {"SpeeD": "speed", "MinSNR": "min_snr", "UNet": "unet", "LogitNormal": "logit_normal"}
    assert {name: short({"_target_": f"a.{name}"}) for name in names} == names


def test_the_table_says_it_in_every_form(tmp_path):
    for seed in range(2):
        write_run(
            tmp_path / f"a{seed}", "uniform", seed, steps=250, optimizer={"_target_": "torch.optim.Adam", "lr": 1e-4}
        )
        write_run(tmp_path / f"b{seed}", "logit_normal", seed, steps=250, network={"_target_": "x.UNet", "width": 24})
    table = compare(group_runs(read_runs(tmp_path).runs), "fd1k_digits")
    text = "Besides its name, logit_normal differs from the baseline uniform in: "
    assert table.notes[0].startswith(text) and "optimizer.lr=0.0002 (baseline 0.0001)" in table.notes[0]
    assert table.notes[0] in markdown(table) and "optimizer.lr=0.0002" in latex(table)


def test_rows_named_by_a_key_say_their_method(tmp_path):
    for method, steps in (("uniform", 10), ("logit_normal", 50)):
        solver = {"_target_": "diffusion_lab.solvers.DDIM", "steps": steps}
        write_run(tmp_path / method, method, 0, steps=50, solver=solver)
    groups = group_runs(read_runs(tmp_path).runs, "solver.steps")
    found = [[one.key for one in unnamed_differences(group, groups[0])] for group in groups]
    assert found[0] == [] and "method" in found[1] and "solver.steps" not in found[1]


@pytest.mark.parametrize(
    "config", [{"sampler": "${oc.env:HOME}", "dataset": {}, "network": {}}, {"dataset": 3}, {"x": 1}]
)
def test_what_no_run_has_written_is_taken_as_it_is(tmp_path, config):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.json").write_text(json.dumps({"config": config, "seed": 0}))
    found = read_run_config(read_runs(tmp_path).runs[0])
    assert found.config == config and found.expected is None


@pytest.mark.parametrize(
    "word", ["hydra.searchpath=[file:///tmp]", "hydra/launcher=basic", "sampler=../../x", "~sampler=a"]
)
def test_no_word_of_a_run_folder_is_composed_but_options_of_our_own(tmp_path, monkeypatch, word):
    composed = []
    monkeypatch.setattr(run_config_reader, "_compose", lambda words: composed.append(words))
    for k, choices in enumerate((None, dict([word.split("=")]))):
        folder = make(tmp_path / str(k))
        info = json.loads((folder / "run.json").read_text()) | {"overrides": [word], "choices": choices}
        (folder / "run.json").write_text(json.dumps(info))
    for run in read_runs(tmp_path).runs:
        assert read_run_config(run).expected is None
    assert set(composed) <= {()}


def test_a_seed_of_its_own_is_a_difference_only_where_it_differs(tmp_path):
    metrics = {"_target_": "diffusion_lab.metrics.Evaluation", "seed": 0}
    for seed, method in ((0, "uniform"), (7, "logit_normal")):
        write_run(tmp_path / str(seed), method, seed, steps=250, metrics=metrics)
    runs = read_runs(tmp_path).runs
    assert all(set(group.differences) == {"sampler"} for group in group_runs(runs))  # nor dataset.seed, which follows
    one, other = (read_config_alone(run) for run in runs)
    assert [difference.key for difference in differences(one, other)] == ["sampler"]
    write_run(tmp_path / "b", "uniform", 1, steps=250, metrics=metrics | {"seed": 1})
    assert all("metrics.seed" in group.differences for group in group_runs(read_runs(tmp_path).runs))
