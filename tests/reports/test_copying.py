"""When the report says that a better distance may come from copied images."""

import json
import re

import pytest

from diffusion_lab.cli.outcome import outcome
from diffusion_lab.reports import compare, group_runs, read_runs
from diffusion_lab.reports.comparison.copying import copying_notes
from diffusion_lab.reports.comparison.rows import tabulate
from diffusion_lab.reports.pair.page import make_pair_report
from diffusion_lab.reports.pair.pair import pair
from tests.reports.synthetic import write_run
from tests.reports.test_tables import FD

BASE = {"fd": [3.0, 3.2, 2.9, 3.1], "held_out": [3.9, 4.1, 3.8, 4.0], "share": [0.52, 0.53, 0.51, 0.52]}
BETTER = {"fd": [2.0, 2.3, 1.9, 2.1], "held_out": [2.8, 3.1, 2.7, 2.9], "share": [0.53, 0.52, 0.51, 0.53]}
COPIES = BETTER | {"share": [0.63, 0.64, 0.61, 0.60]}
NAMES = {"fd": FD, "held_out": f"test_{FD}", "share": "copying1k"}


def write(folder, method, measured, width=0.04):
    """A run per seed with these values, as training writes them."""
    for seed in range(4):
        path = folder / f"{method}-{seed}"
        write_run(path, method, seed, steps=250)
        lines = []
        for key, values in measured.items():
            value = values[seed]
            line = {"step": 250, "name": NAMES[key], "value": value, "units": "", "protocol": {"samples": 1000}}
            line |= {"better": "neither" if key == "share" else "lower"}
            lines.append(line | ({"interval": [value - width, value + width]} if key == "share" else {}))
        (path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        last = {f"metrics/{line['name']}": line["value"] for line in lines}
        (path / "metrics.jsonl").write_text(json.dumps({"step": 250, "images": 16000} | last) + "\n")
        result = json.loads((path / "result.json").read_text())
        (path / "result.json").write_text(json.dumps(result | {"metrics": last}))


def notes(folder, other, base=BASE, metric=FD, **options):
    write(folder, "uniform", base)
    write(folder, "logit_normal", other, **options)
    return copying_notes(tabulate(group_runs(read_runs(folder).runs), metric))


def test_a_larger_share_of_copies_is_said_with_its_interval(tmp_path):
    assert notes(tmp_path, COPIES) == [
        "The difference of logit_normal to uniform may come from copied images: 0.62 [0.58, 0.66] of its samples are "
        "nearer to training images than to as many held-out ones, of uniform 0.52."
    ]
    groups = group_runs(read_runs(tmp_path).runs)
    assert compare(groups, FD).notes[0].startswith("The difference of logit_normal to uniform may come from copied")


@pytest.mark.parametrize("who", ["uniform", "logit_normal"])
def test_a_diverged_seed_hides_no_copies(tmp_path, who):
    """The note used the runs that the verdict leaves out, and was gone; a page of two methods had none at all."""
    held_out = {"held_out": [4.0, 4.0, 3.7, 4.2]}
    base, other = {key: list(values) for key, values in BASE.items()}, BETTER | held_out
    lost = {key: list(values) for key, values in other.items()}
    (base if who == "uniform" else lost)["fd"][2] = 500.0
    (base if who == "uniform" else lost)["held_out"][2] = 520.0
    (said,) = notes(tmp_path, lost, base)
    assert "may come from copied images: the distance to held-out images" in said
    groups = group_runs(read_runs(tmp_path).runs)
    page = make_pair_report(pair(groups[0], groups[1], FD))
    assert said in page.metrics.notes


def test_a_difference_that_held_out_images_do_not_show_is_said(tmp_path):
    (said,) = notes(tmp_path, BETTER | {"held_out": [4.0, 4.0, 3.7, 4.2]})
    assert said.startswith(
        "The difference of logit_normal to uniform may come from copied images: the distance to held-"
    )
    assert f"images, test_{FD}, does not show it (+0.025 [-0.21, +0.26])." in said


def test_both_reasons_are_one_sentence(tmp_path):
    (said,) = notes(tmp_path, COPIES | {"held_out": BASE["held_out"]})
    assert "0.62 [0.58, 0.66] of its samples" in said and f"and the distance to held-out images, test_{FD}" in said


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (BETTER, {}),
        (COPIES | {"fd": BASE["fd"][::-1]}, {}),  # no verdict
        (COPIES | {"fd": [4.0, 4.3, 3.9, 4.1]}, {}),  # worse
        (COPIES, {"width": 0.14}),  # 0.5 is in the interval of the share
        (BETTER | {"held_out": [2.4, 4.3, 2.2, 3.9]}, {}),  # held-out images are too few to tell
        ({"fd": BETTER["fd"]}, {}),  # as in folders of before
    ],
)
def test_otherwise_nothing_is_said(tmp_path, other, options):
    assert notes(tmp_path, other, **options) == []


def test_a_share_that_the_baseline_has_as_well_is_no_reason(tmp_path):
    assert notes(tmp_path, COPIES, base=BASE | {"share": [0.64, 0.62, 0.63, 0.61]}) == []


def test_only_a_distance_to_training_images_is_suspected(tmp_path):
    assert notes(tmp_path, COPIES, metric=f"test_{FD}") == []


@pytest.mark.parametrize("recorded", [None, "0.5", [0.5], [0.4, "x"], [0.4, True], {"low": 0.4}])
def test_an_interval_of_another_form_is_none(tmp_path, recorded):
    write(tmp_path, "uniform", BASE)
    (run, *_) = read_runs(tmp_path).runs
    assert run.interval("copying1k") == pytest.approx((0.48, 0.56)) and run.interval(FD) is None
    assert any(re.search(r"copying1k +0\.52  \(95 % interval 0\.48 to 0\.56\)", line) for line in outcome(run))
    path = run.folder / "evaluations.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line | {"interval": recorded}) + "\n" for line in lines))
    assert read_runs(tmp_path).runs[0].interval("copying1k") is None
