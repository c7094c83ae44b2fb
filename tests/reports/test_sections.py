"""A folder of several data sets."""

import json

import pytest

from diffusion_lab.cli.commands.report import main
from diffusion_lab.cli.run_config_reader import read_run_config
from diffusion_lab.reports import make_report, read_runs, sections_of
from diffusion_lab.reports.comparison.shown import Choice
from tests.reports.synthetic import write_run


def write(folder, method, seed, dataset="Digits", metric=None, **changed):
    """A run on another data set, measured by another metric."""
    write_run(folder, method, seed, steps=250, **changed)
    path = folder / "run.json"
    info = json.loads(path.read_text())
    info["dataset"] = {"_target_": f"diffusion_lab.data.{dataset}"}
    info["group_hash"] = f"{dataset}{info['group_hash']}"
    path.write_text(json.dumps(info))
    if metric:
        for name in ("metrics.jsonl", "evaluations.jsonl", "result.json"):
            text = (folder / name).read_text().replace("1k_digits", metric)
            (folder / name).write_text(text)


@pytest.fixture
def mixed(tmp_path):
    folder = tmp_path / "runs"
    for seed in range(3):
        for method in ("uniform", "logit_normal"):
            write(folder / f"digits-{method}-{seed}", method, seed)
            write(folder / f"rgb-{method}-{seed}", method, seed, "ImageFolder", "512_inception")
    write(folder / "rgb-stratified", "stratified", 0, "ImageFolder", "512_inception")
    return folder


def test_each_data_set_has_its_own_table_metric_and_baseline(mixed):
    first, second = sections_of(read_runs(mixed).runs)
    assert (first.title, second.title) == ("digits: fd1k_digits", "image_folder: fd512_inception")
    assert [group.label for group in first.groups] == ["uniform", "logit_normal"]  # without words for the other set
    assert [group.label for group in second.groups] == ["uniform", "logit_normal", "stratified"]


def test_metric_key_and_baseline_may_be_those_of_one_section(mixed):
    sections = sections_of(read_runs(mixed).runs, "fd512_inception", None, "stratified")
    assert [section.metric for section in sections] == ["fd1k_digits", "fd512_inception"]
    assert [section.groups[0].label for section in sections] == ["uniform", "stratified"]
    assert [s.metric for s in sections_of(read_runs(mixed).runs, "fd")] == ["fd1k_digits", "fd512_inception"]
    for wrong in ({"metric": "fid50k"}, {"by": "smapler"}, {"baseline": "ddpm"}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}="):
            sections_of(read_runs(mixed).runs, **wrong)


def test_rows_that_are_asked_for_may_be_those_of_one_section(mixed, without_figures):
    found = read_runs(mixed)
    made = make_report(found, sections_of(found.runs), choice=Choice(["stratified"]))
    labels = [[group.label for group in part.shown] for part in made.parts]
    assert labels == [["uniform", "logit_normal"], ["uniform", "stratified"]]


def test_what_was_measured_otherwise_is_another_section(tmp_path):
    for seed in range(2):
        write(tmp_path / f"a{seed}", "uniform", seed)
        write(tmp_path / f"b{seed}", "logit_normal", seed)
        path = tmp_path / f"b{seed}" / "evaluations.jsonl"
        path.write_text(path.read_text().replace('"fingerprint": "0123456789ab"', '"fingerprint": "ffff"'))
    write_run(tmp_path / "c", "stratified", 0, steps=50, result=None)
    first, second = sections_of(read_runs(tmp_path).runs)
    assert [group.label for group in first.groups] == ["uniform", "stratified"]  # which has not measured anything yet
    assert [group.label for group in second.groups] == ["logit_normal"]
    assert "fingerprint=0123456789ab" in first.title and "fingerprint=ffff" in second.title


def test_values_on_latents_of_the_runs_seed_and_of_one_for_all_runs_have_sections_of_their_own(tmp_path):
    for name, method, rule in (("a", "uniform", "0"), ("b", "logit_normal", '"the run\'s"')):
        write(tmp_path / name, method, 0)
        lines = (tmp_path / name / "evaluations.jsonl").read_text()
        (tmp_path / name / "evaluations.jsonl").write_text(lines.replace('"seed": 0', f'"seed": {rule}'))
    titles = [section.title for section in sections_of(read_runs(tmp_path).runs)]
    assert ["latents=0" in title for title in titles] == [True, False] and "latents=the run's" in titles[1]


def test_terminal_page_and_files_show_every_section(mixed, tmp_path, capsys):
    arguments = ["--out", str(tmp_path / "p.html"), "--table", str(tmp_path / "t.md"), "--figures", str(tmp_path / "f")]
    assert main([str(mixed), *arguments]) == 0
    text, table = capsys.readouterr().out, (tmp_path / "t.md").read_text()
    for said in (text, table, (tmp_path / "p.html").read_text()):
        assert "digits: fd1k_digits" in said and "image_folder: fd512_inception" in said
    assert table.count("| uniform | n=3 |") == 2 and table.count("| 1 |") == 2  # the cost of each baseline
    names = {path.name for path in (tmp_path / "f").iterdir()}
    assert {"digits-fd1k-digits-ratio-to-uniform.svg", "image-folder-fd512-inception-cost.svg"} <= names


def test_a_baseline_of_which_a_section_has_nothing_finished_is_that_of_the_others(mixed):
    write(mixed / "digits-stratified", "stratified", 0)
    (mixed / "digits-stratified" / "result.json").unlink()
    first, second = sections_of(read_runs(mixed).runs, baseline="stratified")
    assert (first.groups[0].label, second.groups[0].label) == ("uniform", "stratified")


def test_tasks_have_sections_of_their_own(tmp_path):
    task = {"_target_": "diffusion_lab.data.ImageGeneration"}
    write(tmp_path / "a", "uniform", 0, task=task)
    write(tmp_path / "b", "logit_normal", 0, task=task)
    write(tmp_path / "c", "logit_normal", 0, task={"_target_": "diffusion_lab.data.SuperResolution"})
    found = [
        [len(section.groups), section.title] for section in sections_of(read_runs(tmp_path).runs, read=read_run_config)
    ]
    assert found == [[2, "digits image_generation: fd1k_digits"], [1, "digits super_resolution: fd1k_digits"]]
