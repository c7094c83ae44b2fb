"""Analyses on the report's page."""

import base64
import json
import shutil

from diffusion_lab.reports import Report, page, read_runs
from diffusion_lab.reports.pages.html import analysed


def write(place, name, sentence, run="r", svg=b"<svg/>"):
    folder = place / "analyses" / name
    folder.mkdir(parents=True)
    (folder / "figure.svg").write_bytes(svg)
    model = {"run": run, "step": 7, "weights": "raw"}
    (folder / "facts.json").write_text(json.dumps({"sentence": sentence, "protocol": {"models": [model]}}))


def test_those_of_the_folder_come_first_then_those_of_each_run(sweep, tmp_path):
    top = shutil.copytree(sweep, tmp_path / "runs" / "sweep").parent
    runs = [run.folder for run in read_runs(top).runs]
    write(runs[1], "per_timestep", "Of a run.")
    write(top / "sweep", "reward_variance", "Of a sweep.")
    write(top, "spread", "Of all.")
    write(tmp_path, "outside", "Of a folder above.")
    found = analysed(read_runs(top))
    assert [one["sentence"] for one in found] == ["Of all.", "Of a sweep.", "Of a run."]
    assert [one["title"] for one in found] == ["Spread", "Reward variance", "Per timestep"]
    assert found[2]["where"] == f"sweep/{runs[1].name}/analyses/per_timestep" and found[0]["where"] == "analyses/spread"
    assert found[0]["models"] == "r, step 7, weights raw"


def test_the_page_shows_figure_and_sentence_as_text_and_is_else_unchanged(sweep, tmp_path):
    top, svg = shutil.copytree(sweep, tmp_path / sweep.name), b"<svg><script>alert(1)</script></svg>"
    report = Report(read_runs(top), [])
    plain = page(report)
    assert "Per timestep" not in plain
    write(top, "per_timestep", "It is <b>so</b>.", svg=svg)
    text = page(report)
    begin, end = text.index("<h2>Per timestep</h2>"), text.index("<h2>Commands and versions</h2>")
    section = text[begin:end]
    assert "It is &lt;b&gt;so&lt;/b&gt;." in section
    assert base64.b64encode(svg).decode() in section and "alert" not in text  # an image runs no script
    assert "Of r, step 7, weights raw; numbers and protocol in <code>analyses/per_timestep</code>." in section
    assert text[:begin] + text[end:] == plain
