"""`diffusion-lab dashboard` as a user meets it, without an account or a network."""

from __future__ import annotations

import importlib.util
import itertools
import json
from pathlib import Path

import pytest
import yaml

from diffusion_lab.cli.commands.dashboard import main
from diffusion_lab.cli.commands.train import facts
from diffusion_lab.cli.config import compose_train, conf_dir
from diffusion_lab.cli.table_files import load_scale, load_table
from diffusion_lab.cli.table_jobs import Jobs
from diffusion_lab.runs.record import write_record
from tests.reports.synthetic import write_run

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning")  # of wandb-workspaces' import


@pytest.fixture(autouse=True)
def nobody(tmp_path, monkeypatch):
    """A user without key, settings and network, whose terminal cannot answer."""
    import wandb

    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "NETRC", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    wandb.teardown()
    yield
    wandb.teardown()


@pytest.fixture
def sweep(tmp_path):
    folder = tmp_path / "sweep"
    for sampler in ("uniform", "logit_normal"):
        for seed in (0, 1):
            write_run(folder / f"{sampler}-s{seed}", sampler, seed, steps=250)
    return folder


def test_a_folder_becomes_a_document_and_a_sweep(sweep, capsys):
    assert main([str(sweep)]) == 0
    text = capsys.readouterr().out
    document = json.loads((sweep / "dashboard" / "workspace.json").read_text())
    titles = [
        panel["config"].get("chartTitle")
        for s in document["section"]["panelBankConfig"]["sections"]
        for panel in s["panels"]
    ]
    assert "fd1k_digits, lower is better" in titles
    content = yaml.safe_load((sweep / "dashboard" / "sweep.yaml").read_text())
    assert content["parameters"]["seed"] == {"values": ["0", "1"]}
    assert content["parameters"]["sampler"] == {"values": ["uniform", "logit_normal"]}
    assert f"to upload it: wandb login && diffusion-lab dashboard {sweep}\n" in text
    assert "note: none of these runs was logged to W&B" in text


def test_jobs_that_are_no_product_have_several_sweeps_and_old_ones_go(sweep, capsys):
    (sweep / "dashboard").mkdir()
    (sweep / "dashboard" / "sweep-mine.yaml").write_text("program: mine\n")
    path = sweep / "uniform-s1" / "run.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"overrides": ["sampler=uniform", "optimizer.lr=0.1", "seed=1"]}))
    assert main([str(sweep), "--offline"]) == 0
    assert capsys.readouterr().out.count("sweep: ") == 3
    path.write_text(json.dumps(record))
    assert main([str(sweep), "--offline"]) == 0
    assert sorted(p.name for p in (sweep / "dashboard").glob("*.yaml")) == ["sweep-mine.yaml", "sweep.yaml"]


def test_with_a_key_but_no_network_it_says_so_at_once(sweep, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    assert main([str(sweep)]) == 0
    assert "no connection to W&B (ConnectionRefusedError" in capsys.readouterr().out


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_with_an_account_it_is_uploaded(fails, code, sweep, monkeypatch, capsys):
    uploaded = []

    def upload(workspace, entity):
        uploaded.append((workspace, entity))
        if fails:
            raise ConnectionResetError("the server went away\nlong story")
        return "https://wandb.test/me/lab"

    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr("diffusion_lab.dashboards.upload", upload)
    monkeypatch.setattr("diffusion_lab.loggers.wandb_service.check_reachable", lambda url: None)
    assert main([str(sweep), "--entity", "me", "--project", "lab"]) == code
    ((workspace, entity),) = uploaded
    assert (entity, workspace.project) == ("me", "lab")
    said = capsys.readouterr()
    assert ("failed: W&B refused the workspace (ConnectionResetError" in said.err) == fails
    assert ("W&B: https://wandb.test/me/lab" in said.out) == (not fails)
    assert main([str(sweep), "--offline"]) == 0 and len(uploaded) == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["adaptive_bta"], "dashboard=adaptive_bta must be a paper (adaptive_beta, "),
        (["{sweep}", "scale=smoke"], "scale=smoke must be left out for a folder of runs"),
        (["{tmp}/empty"], "must hold runs"),
        (["adaptive_beta", "--seeds", "0-2"], "seeds=0-2 must be different integers >= 0"),
        (["adaptive_beta", "--seeds", "0,0"], "seeds=0,0 must be different integers >= 0"),
        (["{sweep}", "--seeds", "0"], "--seeds must be left out for a folder of runs"),
        (["adaptive_beta", "scale=smoky"], "scale=smoky must be one of"),
        (["adaptive_beta", "method"], "method must be key=value"),
        (["clts_mdlrc", "scale=smoke", "solver.stps=3"], "solver.stps"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(arguments, says, sweep, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert main([word.format(sweep=sweep, tmp=tmp_path) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("config error: ") and says in error and error.count("\n") == 1


def test_without_the_package_the_cure_is_named(sweep, monkeypatch, capsys):
    find = importlib.util.find_spec
    hidden = "diffusion_lab.dashboards.workspace.find_spec"
    monkeypatch.setattr(hidden, lambda name: None if name == "wandb_workspaces" else find(name))
    assert main([str(sweep)]) == 2
    assert "not installed; pip install 'diffusion-lab[dashboard]'" in capsys.readouterr().err


@pytest.mark.parametrize("own", [True, False])
def test_runs_of_ones_own_take_their_config_dir_along(own, sweep):
    for path in sweep.glob("*/run.json"):
        record = json.loads(path.read_text()) | {"own_parts": {"config_dirs": ["/home/me/my conf"], "modules": {}}}
        write_record(path.parent, record, own=own)
    assert main([str(sweep), "--offline"]) == 0
    command = yaml.safe_load((sweep / "dashboard" / "sweep.yaml").read_text())["command"]
    assert command[2:4] == (["--config-dir", "/home/me/my conf"] if own else ["logger=wandb", command[3]])


@pytest.mark.parametrize("key", ["project", "group"])
def test_a_strangers_folder_names_no_account(key, sweep, capsys):
    path = sweep / "uniform-s0" / "run.json"
    record = json.loads(path.read_text())
    record["config"]["logger"] = {"wandb": {key: "lab\nentity: theirs"}}
    path.write_text(json.dumps(record))
    assert main([str(sweep), "--offline"]) == 2
    error = capsys.readouterr().err
    assert f"logger.wandb.{key}='lab\\nentity: theirs' must be text in one line" in error and error.count("\n") == 1
    assert not (sweep / "dashboard").exists()


@pytest.mark.parametrize("words", [("--project", "a/b"), ("--entity", "a\nb")])
def test_names_that_w_and_b_does_not_have_are_refused(words, sweep, capsys):
    assert main([str(sweep), "--offline", *words]) == 2
    assert f"{words[0].strip('-')}=" in capsys.readouterr().err


def test_a_strangers_folder_gives_no_options_to_the_agent(sweep, capsys):
    for word in ("--config-dir=/somewhere", "hydra.run.dir=/somewhere"):
        path = sweep / "uniform-s0" / "run.json"
        record = json.loads(path.read_text())
        path.write_text(json.dumps(record | {"overrides": [word]}))
        assert main([str(sweep)]) == 2
        assert f"asks for '{word}'" in capsys.readouterr().err


def test_tags_and_labels_of_a_papers_run(tmp_path):
    words = ["experiment=adaptive_beta/table1", "method=p2", "schedule=quadratic", "scale=smoke", "seed=1"]
    cfg = compose_train(words, Path(tmp_path / "run"))
    assert facts(cfg)["tags"] == [
        *("paper:adaptive_beta", "experiment:adaptive_beta/table1", "method:p2"),
        *("dataset:cifar10", "schedule:quadratic", "scale:smoke"),
    ]
    other = compose_train([*words[:-1], "seed=2"], Path(tmp_path / "other"))
    first, second = (facts(one)["labels"] for one in (cfg, other))
    assert first == second and first["seed_group"].startswith("cifar10-p2-")


@pytest.mark.slow
def test_a_paper_is_selected_by_tag_and_its_sweeps_are_the_jobs_of_its_tables(tmp_path):
    out = tmp_path / "out"
    assert main(["equal_loss_slots", "scale=smoke", "--out", str(out), "--offline", "--seeds", "3,4"]) == 0
    document = json.loads((out / "workspace.json").read_text())
    filters = document["section"]["runSets"][0]["filters"]["filters"]
    assert [entry["value"] for entry in filters] == [["paper:equal_loss_slots"], ["dataset:digits"]]
    names = {path.stem for path in (conf_dir() / "table" / "equal_loss_slots").glob("*.yaml")}
    assert {path.stem.split("-")[1] for path in out.glob("sweep-*.yaml")} == names
    table, scale = (
        load(name, [conf_dir()]) for load, name in ((load_table, "equal_loss_slots/predictions"), (load_scale, "smoke"))
    )
    jobs = {frozenset(job.words) for job in Jobs(table, scale).of(table.rows, [3, 4], {})}
    listed = []
    for path in out.glob("sweep-predictions*.yaml"):
        content = yaml.safe_load(path.read_text())
        axes = [[f"{key}={value}" for value in entry["values"]] for key, entry in content["parameters"].items()]
        fixed = [word for word in content["command"][4:] if "args_no_hyphens" not in word]
        listed += [frozenset([*fixed, *combination]) for combination in itertools.product(*axes)]
    assert len(listed) == len(set(listed)) and set(listed) == jobs


def test_words_are_checked_before_tables_are_composed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("diffusion_lab.cli.dashboard_source.source_of", lambda *_: pytest.fail("it composed"))
    (tmp_path / "file").touch()
    for words, said in (
        (["--project", "a/b"], "project='a/b' must be a name"),
        (["--entity", "a/b"], "entity='a/b' must be a name"),
        (["--seeds", "x"], "seeds=x must be different integers"),
        (["--out", str(tmp_path / "file" / "x")], "must be a folder that can be written to"),
    ):
        assert main(["adaptive_beta", *words]) == 2
        assert said in capsys.readouterr().err


def test_a_folder_is_made_only_for_what_is_written(tmp_path, capsys):
    assert main(["adaptive_beta", "scale=smoky", "--out", str(tmp_path / "made" / "here")]) == 2
    assert "scale=smoky must be one of" in capsys.readouterr().err and not (tmp_path / "made").exists()


def test_a_variable_that_keeps_it_offline_is_named(sweep, capsys, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert main([str(sweep)]) == 0
    said = "WANDB_MODE=disabled, so nothing was uploaded; to upload it: WANDB_MODE=online diffusion-lab dashboard"
    assert said in capsys.readouterr().out
