"""A metric of the user's own: one .py and one .yaml outside the repository, as docs/metrics.md shows them."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict

from diffusion_lab.cli import config
from diffusion_lab.cli.config import compose_train
from diffusion_lab.cli.main import main
from diffusion_lab.cli.validate import check_command
from diffusion_lab.metrics import Metric
from diffusion_lab.metrics.metric import check_metric
from tests.harness import Child

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
EXAMPLES = dict(re.findall(r"<!-- example: (\S+) -->\n```\w+\n(.*?)```", PAGE, re.S))
SMALL = (
    "scale=smoke",
    "metrics=default",
    "metrics.num_samples=20",
    "metrics.names=[contrast,sample_variance]",
    "max_steps=2",
    "network.base_channels=8",
    "trainer.accelerator=cpu",
)
OWN = ("--config-dir", "my_conf")


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder."""
    assert set(EXAMPLES) == {"contrast.py", "my_conf/metric/contrast.yaml"}
    for name, text in EXAMPLES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(user: Path, *words: str) -> tuple[int, str]:
    """Exit code and output of `diffusion-lab WORDS`."""
    log = user / "log"
    log.unlink(missing_ok=True)

    def work() -> None:
        raise SystemExit(main(list(words)))

    return Child(work, log).wait(), log.read_text()


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "evaluations.jsonl").read_text().splitlines()]


def forget_directions(folders: Sequence[Path]) -> None:
    """As records were before they said what is better."""
    for folder in folders:
        kept = [
            {k: v for k, v in line.items() if k not in ("better", "units", "compared_by")} for line in lines(folder)
        ]
        (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))


@pytest.mark.slow
def test_it_is_measured_tabulated_and_drawn_in_its_direction(user: Path) -> None:
    code, said = run(
        user, "train", *OWN, "-m", "base=ddpm", "seed=0,1", "name=own", "sampler=uniform,logit_normal", *SMALL
    )
    assert code == 0, said
    folders = sorted(user.glob("runs/own/digits-*"))
    assert len(folders) == 4
    for folder in folders:
        line = next(line for line in lines(folder) if line["name"] == "contrast20")
        assert (line["better"], line["units"]) == ("higher", "grey levels")
        common = {"samples": 20, "solver": "ddim-4-eta0", "ema_decay": 0.9999, "seed": "the run's"}
        assert line["protocol"] == common | {"scale": 1.0}
        assert json.loads((folder / "result.json").read_text())["metrics"]["metrics/contrast20"] == line["value"]
    trained = lines(folders[0])[0]["value"]
    # The same samples again, of the command line alone, and twice the contrast where the yaml says so.
    (user / "my_conf" / "metric" / "contrast.yaml").write_text("_target_: contrast.Contrast\nscale: 2.0\n")
    measure = ("evaluate", f"run={folders[0]}", "metrics.names=[contrast]", "metrics.num_samples=20")
    assert run(user, *measure, *OWN)[0] == 0
    again = lines(folders[0])[-1]
    assert again["value"] == pytest.approx(2 * trained, rel=1e-6) and again["protocol"]["scale"] == 2.0
    _check_report(user, folders)
    # Whoever has the folder but not the class can evaluate it by other metrics, and is refused this one.
    other = [*measure[:2], "metrics.names=[sample_variance]", measure[3]]
    assert run(user, *other)[0] == 0
    (user / "my_conf").rename(user / "away")
    code, said = run(user, *measure)
    assert code == 2 and "metrics.names=[contrast] must be metrics, and there is no contrast" in said
    (user / "away").rename(user / "my_conf")
    code, said = run(user, "train", f"resume={folders[1]}", "max_steps=3")  # a run of one's own knows its --config-dir
    assert code == 0, said
    assert [line["step"] for line in lines(folders[1]) if line["name"] == "contrast20"][-1] == 3


def _check_report(user: Path, folders: Sequence[Path]) -> None:
    """The arrow follows the record; without one it points down, as it does for a name that nobody knows."""
    report = ("report", "runs/own", "--metric", "contrast20", "--figures", "figures")
    code, said = run(user, *report)
    assert code == 0 and "contrast20 [grey levels] ↑" in said, said
    page = (user / "runs" / "own" / "report.html").read_text()
    assert "contrast20 [grey levels] ↑" in page and "sample_variance20 ↑" not in page
    figure = (user / "figures" / "difference-to-uniform.svg").read_text()
    assert "← worse      difference in contrast20 [grey levels] from uniform      better →" in figure
    forget_directions(folders)
    code, said = run(user, *report)
    assert code == 0 and "contrast20 ↓" in said
    assert (
        "← better      ratio of contrast20 to uniform      worse →"
        in (user / "figures" / "ratio-to-uniform.svg").read_text()
    )


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    """What `diffusion-lab train metrics.names=[contrast]` composes."""
    return compose_train(["metrics.names=[contrast]"], Path("run"))


def faults(cfg: DictConfig, user: Path, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> list[str]:
    """Of a configuration whose --config-dir is the user's."""
    cfg = copy.deepcopy(cfg)
    with open_dict(cfg):
        cfg.metrics.update(changed)
    sources = [*cfg.hydra.runtime.config_sources, {"path": str(user / "my_conf"), "provider": "command-line"}]
    monkeypatch.setattr(config, "hydra_of", lambda cfg: OmegaConf.create({"runtime": {"config_sources": sources}}))
    monkeypatch.syspath_prepend(user)
    with open_dict(cfg):
        del cfg["hydra"]
    try:
        return [str(error) for error in check_command("train", cfg, [str(user / "my_conf")])]
    finally:
        sys.modules.pop("contrast", None)


@pytest.mark.parametrize(
    ("yaml", "fault"),
    [
        ("_target_: os.system\ncommand: touch marker", "metric.contrast._target_=os.system must be a class of"),
        ("_target_: diffusion_lab.diffusion.Epsilon", "diffusion_lab.diffusion.Epsilon must be a Metric; choose"),
        ("_target_: diffusion_lab.metrics.Metric", "must be a concrete Metric, and lacks __call__; name one"),
        ("scale: 2.0", "metric.contrast._target_ is missing"),
        ("_target_: contrast.Contrast\nscales: 2.0", "metric.contrast.scales=2.0: Contrast has no argument scales"),
        ("- 1", "must hold _target_ and the arguments of a metric"),
        ("a: [", "contrast.yaml cannot be read"),
    ],
)
def test_what_is_no_metric_is_refused(
    composed: DictConfig, user: Path, yaml: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert faults(composed, user, monkeypatch) == []
    (user / "my_conf" / "metric" / "contrast.yaml").write_text(yaml)
    (said,) = faults(composed, user, monkeypatch)
    assert fault in said and "\n" not in said


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["fid", "contrsat"], "there is no contrsat (did you mean 'contrast'?); use some of agreement, bits_per_dim"),
        (["fid", "fid"], "metrics.names=[fid,fid] must be a list of different metrics; use metrics.names=[fid]"),
        ("fid", "metrics.names=fid must be a list of different metrics"),
        (None, "metrics.names=null must be a list of different metrics"),
        (["../../secret/fid"], "there is no ../../secret/fid"),
        ([1], "there is no 1"),
        ([["fid"]], "metrics.names=[['fid']] must be metrics"),
    ],
)
def test_names_are_files_of_the_group_and_nothing_else(
    composed: DictConfig, user: Path, names: Any, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (said,) = faults(composed, user, monkeypatch, names=names)
    assert fault in said


def test_the_command_says_it_before_anything_else(user: Path) -> None:
    text = EXAMPLES["contrast.py"]
    (user / "contrast.py").write_text(text.replace('"higher"', '"more"'))
    code, said = run(user, "train", *OWN, *SMALL)
    assert code == 2 and said.startswith("config error: "), said
    assert "Contrast.better='more' must be one of lower, higher, neither; correct it in the class" in said
    code, said = run(user, "train", *OWN, "metrics.names=[contrsat]")
    assert code == 2 and said.startswith("config error: metrics.names=[contrsat] must be"), said


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        (
            {"needs": frozenset({"sample"})},
            "Own.needs={'sample'} must be some of features, moments, logits, scores, samp",
        ),
        ({"needs": frozenset({"sample"})}, " (did you mean 'samples'?); correct it in the class"),
        ({"needs": frozenset()}, "Own.needs={} must be some of features"),
        ({"better": "bigger"}, "Own.better='bigger' must be one of lower, higher, neither"),
        ({"compared_by": "quotient"}, "Own.compared_by='quotient' must be one of ratio, difference"),
        ({"better": "highest"}, "neither (did you mean 'higher'?); correct"),
        ({"name": ""}, "Own.name='' must be the name that is typed in metrics.names; correct"),
    ],
)
def test_an_attribute_of_a_metric_that_is_wrong_is_one_sentence(attributes: dict[str, Any], said: str) -> None:
    given = {"name": "own", "better": "lower", "needs": frozenset({"samples"}), "__call__": lambda self, given: 0.0}
    with pytest.raises(ValueError) as error:
        check_metric(type("Own", (Metric,), given | attributes)())
    assert said in str(error.value)
