"""W&B without an account, a network or luck. Nothing here contacts a server."""

import logging
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from diffusion_lab.cli.commands.report import main
from diffusion_lab.loggers import WandbLogger, log_config, log_curve, log_directions, log_image, log_values
from tests.loggers.wandb_file import read_run
from tests.reports.curves import FD, STEPS, power_law, write_curves

NOTICE = "diffusion_lab.loggers.wandb"


def notices(caplog):
    """What our logger said; W&B's own lines go to a file in its folder."""
    return [record for record in caplog.records if record.name == NOTICE]


@pytest.fixture(autouse=True)
def nobody(tmp_path, monkeypatch):
    """A user without key, settings and network; W&B's process-wide state is fresh."""
    import wandb

    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(home))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # the discard port: nobody listens
    wandb.teardown()
    yield
    wandb.teardown()


def test_an_offline_run_holds_everything(trainer, tmp_path, caplog):
    Image.new("L", (6, 4), 200).save(tmp_path / "grid.png")
    logger = WandbLogger(
        tmp_path / "run", "lab", group="sweep", job_type="train", tags=["uniform", "digits"], name="digits-uniform-s0"
    )
    fake = trainer(logger)
    caplog.set_level(logging.INFO, NOTICE)
    logger.clock = lambda: 7.5
    log_config(fake, {"seed": 3, "network": {"channel_multipliers": [1, 2]}}, ["paper:adaptive_beta", "uniform"])
    log_directions(fake, {"metrics/fd1k_digits": "lower", "val/loss": "lower", "metrics/is1k": "higher"})
    axes = {"sampler/p": {"timestep": [25.0, 75.0], "log_snr": [2.0, -2.0]}}
    log_values(fake, {"train/loss": 0.25, "sampler/p": [0.25, 0.75], "metrics/fd1k_digits": 3.5}, axes)
    log_image(fake, "samples", tmp_path / "grid.png")
    log_curve(fake, "loss_t", [0, 999], {"train": [1.0, 2.0]})
    logger.finalize("success")

    assert [record.message for record in notices(caplog)] == [
        "W&B: no API key, so this run is kept on disk; to upload it: wandb login && "
        f"wandb sync {tmp_path / 'run' / 'wandb' / 'offline-run-*'}"
    ]
    run = read_run(tmp_path / "run")
    assert (run["project"], run["run_group"], run["job_type"]) == ("lab", "sweep", "train")
    assert (run["display_name"], run["tags"]) == ("digits-uniform-s0", ["uniform", "digits", "paper:adaptive_beta"])
    assert run["config"]["seed"] == 3 and run["config"]["network"] == {"channel_multipliers": [1, 2]}
    assert run["run_id"] == (tmp_path / "run" / "wandb" / "run_id").read_text()
    assert run["exit_code"] == 0
    assert run["axes"]["*"] == "trainer/global_step" and run["axes"]["metrics/*"] == "images"
    assert (run["axes"]["metrics/fd1k_digits"], run["axes"]["val/loss"]) == ("images", "trainer/global_step")
    assert run["summaries"] == {
        "metrics/fd1k_digits": {"last", "min"},
        "val/loss": {"last", "min"},
        "metrics/is1k": {"last", "max"},
    }
    charts, picture, curve = ({k: v for k, v in row.items() if k[0] != "_"} for row in run["history"])
    values = {key: value for key, value in charts.items() if "_table/" not in key}
    assert values == {
        "images": 160,
        "train/loss": 0.25,
        "metrics/fd1k_digits": 3.5,
        "trainer/global_step": 20,
        "seconds": 7.5,
    }
    assert list(run["tables"]) == ["sampler/p_table", "loss_t_table"]
    assert run["tables"]["sampler/p_table"]["columns"] == ["timestep", "log_snr", "value"]
    assert run["tables"]["sampler/p_table"]["data"] == [[25.0, 2.0, 0.25], [75.0, -2.0, 0.75]]
    assert run["tables"]["loss_t_table"]["data"] == [[0, "train", 1.0], [999, "train", 2.0]]
    assert picture["trainer/global_step"] == 20
    with Image.open(run["files"] / picture["samples/path"]) as image:
        assert (image.size, image.getpixel((0, 0))) == ((6, 4), 200)
    assert curve["trainer/global_step"] == 20


def test_charts_of_a_list_are_few_and_the_last_is_among_them(tmp_path):
    logger = WandbLogger(tmp_path, mode="offline")
    for step in range(1, 26):
        logger.log_values({"p": [float(step), float("nan")]}, step)
        logger.log_curve("p", [0], {"p": [0.0]}, step)  # the list has its chart
    logger.finalize("success")
    run = read_run(tmp_path)
    rows = [row for row in run["history"] if any(key.startswith("p_table") for key in row)]
    steps = [row["trainer/global_step"] for row in rows]
    assert steps == [*range(1, 12), 13, 15, 17, 19, 21, 24, 25]  # each 1.1 times the one before, and the last
    assert run["tables"]["p_table"] == {"columns": ["index", "value"], "data": [[0, 25.0]]} | run["tables"]["p_table"]


def test_charts_are_as_few_where_a_run_goes_on(tmp_path):
    """Each start began anew with a chart at every log: 123 where an uninterrupted run has 54."""
    steps, own = [], []
    for first, end in ((1, 14), (14, 20), (20, 26)):
        logger = WandbLogger(tmp_path, mode="offline")
        logger._run = Kept()
        logger.cut(first)
        for step in range(first, end):
            logger.log_values({"p": [float(step), 1.0]}, step)
            logger.log_curve("own", [0, 1], {"a": [1.0, 2.0]}, step)  # which is no list among the values
        steps += [row["trainer/global_step"] for row in logger._run.rows if "p" in row]
        own += [row["trainer/global_step"] for row in logger._run.rows if "own" in row]
    assert steps == [*range(1, 12), 13, 15, 17, 19, 21, 24] and own == [*range(1, 26)]


def test_a_failed_run_is_marked_and_a_resumed_one_keeps_its_id(tmp_path):
    first = WandbLogger(tmp_path, mode="offline")
    first.log_metrics({"a": 1.0}, 1)
    first.finalize("failed")
    run = read_run(tmp_path)
    assert run["exit_code"] == 1
    second = WandbLogger(tmp_path, mode="offline")
    assert second._stable_id() == run["run_id"]
    assert WandbLogger(tmp_path / "other")._stable_id() != run["run_id"]


def test_in_a_wandb_sweep_the_run_is_the_agents(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "fromagent")
    assert WandbLogger(tmp_path / "alone")._stable_id() != "fromagent"  # set by something else
    monkeypatch.setenv("WANDB_SWEEP_ID", "sweep")
    assert WandbLogger(tmp_path / "job")._stable_id() == "fromagent"
    monkeypatch.setenv("WANDB_RUN_ID", "again")
    assert WandbLogger(tmp_path / "job")._stable_id() == "fromagent"  # a resumed run keeps its own


def test_values_after_the_end_and_other_processes_are_ignored(tmp_path, monkeypatch):
    from lightning.pytorch.utilities import rank_zero_only

    logger = WandbLogger(tmp_path / "a", mode="offline")
    logger.finalize("success")
    logger.log_metrics({"a": 1.0}, 1)
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    other = WandbLogger(tmp_path / "b", mode="offline")
    other.experiment.log({"a": 1.0})
    other.log_metrics({"a": 1.0}, 1)
    other.log_hyperparams({"a": 1.0})
    other.finalize("success")
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


@pytest.mark.parametrize("by", ["argument", "variable"])
def test_disabled_does_nothing(by, tmp_path, monkeypatch):
    if by == "variable":
        monkeypatch.setenv("WANDB_MODE", "disabled")
        logger = WandbLogger(tmp_path / "run")
    else:
        monkeypatch.setitem(sys.modules, "wandb", None)  # importing it would fail
        logger = WandbLogger(tmp_path / "run", mode="disabled")
    logger.log_metrics({"a": 1.0}, 1)
    logger.log_hyperparams({"a": 1})
    logger.finalize("success")
    assert not (tmp_path / "run").exists()


def test_online_without_a_key_is_an_error_before_training(tmp_path):
    with pytest.raises(ValueError, match="^mode=online must find an API key; run `wandb login`"):
        _ = WandbLogger(tmp_path, mode="online").experiment


@pytest.mark.parametrize("mode", ["auto", "online"])
def test_with_a_key_but_no_network_the_run_is_offline_after_one_warning(mode, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    logger = WandbLogger(tmp_path, mode=mode)
    caplog.set_level(logging.INFO, NOTICE)
    logger.log_metrics({"a": 1.0}, 1)
    logger.finalize("success")
    (record,) = notices(caplog)
    assert record.levelno == logging.WARNING and "no connection (ConnectionRefusedError" in record.message
    assert "wandb sync" in record.message
    assert read_run(tmp_path)["history"][0]["a"] == 1.0


class Broken:
    """A run whose `log`, `config.update` and `finish` fail."""

    def __getattr__(self, name):
        raise ConnectionResetError("the service died\nlong story")


@pytest.mark.parametrize(
    ("doing", "act"),
    [
        ("logging", lambda logger: logger.log_metrics({"a": 1.0}, 1)),
        ("logging", lambda logger: logger.log_picture("samples", "no/such.png", 1)),
        ("logging", lambda logger: logger.log_curve("c", [0], {"a": [1.0]}, 1)),
        ("recording the configuration", lambda logger: logger.log_hyperparams({"a": 1})),
        ("stating a direction", lambda logger: logger.log_directions({"a": "lower"})),
        ("adding tags", lambda logger: logger.log_tags(["a"])),
        ("finishing", lambda logger: logger.finalize("success")),
    ],
)
def test_a_failure_later_costs_one_warning(doing, act, tmp_path, caplog):
    logger = WandbLogger(tmp_path)
    logger._run = Broken()
    act(logger)
    logger.log_metrics({"a": 2.0}, 2)
    logger.finalize("success")
    (record,) = notices(caplog)
    assert f"W&B: off for the rest of this run, after an error while {doing} (" in record.message
    assert "\n" not in record.message


def test_a_failure_at_the_start_costs_one_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "wandb", None)
    logger = WandbLogger(tmp_path / "run")
    logger.log_metrics({"a": 1.0}, 1)
    logger.log_metrics({"a": 2.0}, 2)
    (record,) = notices(caplog)
    assert "after an error while starting (ModuleNotFoundError" in record.message


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path, caplog):
    (tmp_path / "run").write_text("a file")
    logger = WandbLogger(tmp_path / "run", mode="offline")
    logger.log_metrics({"a": 1.0}, 1)
    (record,) = notices(caplog)
    assert "while starting (FileExistsError" in record.message


@pytest.mark.parametrize("how", ["argument", "variable"])
def test_who_asks_for_offline_is_given_the_command_that_uploads(how, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, NOTICE)
    if how == "variable":
        monkeypatch.setenv("WANDB_MODE", "offline")
    logger = WandbLogger(tmp_path / "my run", mode="offline" if how == "argument" else "auto")
    logger.log_metrics({"a": 1.0}, 1)
    logger.finalize("success")
    command = f"wandb sync '{tmp_path}/my run/wandb'/offline-run-*"
    assert [record.message.partition("to upload it: ")[2] for record in notices(caplog)] == [command]


def test_it_leaves_the_random_numbers_alone(tmp_path):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    logger = WandbLogger(tmp_path, mode="offline")
    logger.log_metrics({"a": 1.0}, 1)
    logger.finalize("success")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"mode": "on"}, "^mode=on must be one of auto, online, offline, disabled; use auto"),
        ({"project": ""}, "^project='' must be a name of 1 to 128 characters"),
        ({"project": "lab\nentity: theirs"}, "^project='lab.*' must be text in one line"),
        ({"project": "theirs/lab"}, "^project='theirs/lab' must be a name .* without /"),
        ({"project": "${oc.env:HOME}"}, "^project=.* must be a name"),
        ({"group": "a\x1b]52;c;x\x07"}, "^group=.* must be text in one line"),
        ({"name": "a\u2028b"}, "^name=.* must be text in one line"),
        ({"tags": ["a", "b\n"]}, r"^tags\[1\]=.* must be text in one line"),
        ({"run_id": "../x"}, "^run_id=.* must be a name"),
    ],
)
def test_bad_arguments_are_named(arguments, expected, tmp_path):
    with pytest.raises(ValueError, match=expected):
        WandbLogger(tmp_path, **arguments)


class Kept:
    """A run that keeps the rows that it is given."""

    def __init__(self):
        self.rows = []
        self.finish = lambda exit_code: None

    def log(self, row):
        self.rows.append({key: value for key, value in row.items() if key != "seconds"})


def test_a_resumed_run_gives_no_value_twice_and_none_too_few(tmp_path):
    """It was killed in step 7, of which it had logged the half, after a checkpoint of step 5."""
    killed = WandbLogger(tmp_path, mode="offline")
    killed._run = Kept()
    for step in (5, 6, 7):
        killed.log_values({"train/loss": 1.0, "images": 8 * step}, step)
        if step < 7:
            killed.mirror_values({"images": 8 * step, "rate": 2.0}, step)
            killed.log_curve("loss_t", [0, 1], {"train": [1.0, 2.0]}, step)
    resumed = WandbLogger(tmp_path, mode="offline")
    resumed._run = Kept()
    resumed.cut(5)
    resumed.log_metrics({"metrics/fid": 3.0, "images": 40}, 5)  # an evaluation that the checkpoint owed
    for step in (6, 7, 8):
        resumed.log_values({"train/loss": 1.0, "images": 8 * step}, step)
        resumed.mirror_values({"images": 8 * step, "rate": 2.0}, step)
        resumed.log_curve("loss_t", [0, 1], {"train": [1.0, 2.0]}, step)
    rows = [*killed._run.rows, *resumed._run.rows]
    for key in ("train/loss", "rate", "loss_t"):
        assert [row["trainer/global_step"] for row in rows if key in row] == [5, 6, 7, 8], key
    assert rows[7] == {"metrics/fid": 3.0, "images": 40, "trainer/global_step": 5}
    assert rows[8] == {"images": 56, "rate": 2.0, "trainer/global_step": 7}


def test_an_id_that_leads_elsewhere_is_not_read(tmp_path):
    """It would be sent to W&B."""
    (tmp_path / "private").write_text("secret")
    folder = tmp_path / "run" / "wandb"
    folder.mkdir(parents=True)
    (folder / "run_id").symlink_to(tmp_path / "private")
    assert WandbLogger(tmp_path / "run", mode="offline")._stable_id() != "secret"
    assert (tmp_path / "private").read_text() == "secret" and not (folder / "run_id").is_symlink()


def test_a_report_is_a_run_with_the_verdicts(tmp_path, capsys, monkeypatch):
    """In the project and group of its runs; a second report is the same W&B run."""
    monkeypatch.setattr("diffusion_lab.reports.figures.of_section", lambda *of: [])
    logger = {"wandb": {"_target_": "diffusion_lab.loggers.WandbLogger", "project": "lab", "group": "sweep"}}
    for seed, noise in enumerate((1.0, 1.02, 0.97)):
        for method, factor in (("uniform", 1.0), ("logit_normal", 0.7 * noise), ("stratified", 1.0)):
            write_curves(tmp_path / f"{method}-{seed}", method, seed, factor * power_law(STEPS), logger=logger)
    assert main([str(tmp_path), "--baseline", "uniform", "--wandb"]) == 0
    out = capsys.readouterr().out
    assert "to upload it: wandb login && wandb sync" in out and f"{tmp_path / 'report' / 'wandb'}" in out
    run = read_run(tmp_path / "report")
    assert (run["project"], run["run_group"], run["job_type"]) == ("lab", "sweep", "report")
    assert run["config"]["command"] == f"diffusion-lab report {tmp_path} --baseline uniform" and run["exit_code"] == 0
    said = {key.removeprefix(f"{FD}/"): value for key, value in run["summary"].items() if key.startswith(FD)}
    logs = np.log(0.7 * np.array([1.0, 1.02, 0.97]))
    assert said["logit_normal/ratio"] == pytest.approx(np.exp(logs.mean())) and said["logit_normal/n"] == 3
    assert 0 < said["logit_normal/low"] < said["logit_normal/ratio"] < said["logit_normal/high"] < 1
    assert said["logit_normal/verdict"] == "better" and said["stratified/verdict"] == "identical"
    assert "stratified/low" not in said and not any(key.startswith("uniform/") for key in said)
    assert said["answer"] in out and said["answer"].startswith("At n = 3, logit_normal is better: it has 0.70 [")
    assert (said["baseline"], said["estimand"], said["margin"]) == ("uniform", "end", 1.1)
    again = WandbLogger(tmp_path / "report")
    assert again._stable_id() == run["run_id"]


def test_a_report_of_runs_in_two_projects_has_no_place(tmp_path, capsys):
    for project in ("lab", "other"):
        logger = {"wandb": {"project": project}}
        write_curves(tmp_path / project, "uniform", len(project), power_law(STEPS), logger=logger)
    assert main([str(tmp_path), "--wandb"]) == 2
    assert "must hold runs of one W&B project, not of lab, other" in capsys.readouterr().err
