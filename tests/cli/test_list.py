"""`diffusion-lab list`: every option says what it is, at once, at any width, and without importing what it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from diffusion_lab.cli.config import conf_dir
from diffusion_lab.cli.definitions import find
from diffusion_lab.cli.main import main
from diffusion_lab.cli.options import files
from diffusion_lab.cli.options.described import citations, described, parse, readable
from diffusion_lab.cli.options.groups import ABOUT

FOLDERS = [conf_dir()]
METHODS = ("sampler", "weighting", "prediction", "schedule", "solver")  # what people choose by its use and its paper
HEAVY = {"torch", "lightning", "hydra", "omegaconf", "numpy", "rich"}
EVERY = [(group, name) for group in files.groups(FOLDERS) for name in files.options(group, FOLDERS)]


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["list", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("group", sorted({group for group, _ in EVERY}))
def test_every_group_and_option_says_what_it_is(group: str) -> None:
    assert ABOUT[group]
    for name in files.options(group, FOLDERS):
        one = described(group, name, FOLDERS)
        assert len(one.purpose.split()) > 1, one.option.setting
        assert all(key.name for key in one.settings)


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, name in EVERY if group in METHODS])
def test_every_method_says_when_to_use_it_and_what_its_keys_are(group: str, name: str) -> None:
    one = described(group, name, FOLDERS)
    assert one.doc.use.endswith("."), one.option.setting
    assert [key.name for key in one.settings if not key.comment] == []


def test_the_overview_names_every_option_and_no_line_is_too_long(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(capsys)
    assert max(map(len, text.splitlines())) <= 80
    words = set(re.findall(r"[\w/]+", text))
    assert {name for _, name in EVERY} <= words
    assert "[logit_normal]" in text and "[min_snr]" in text


@pytest.mark.parametrize("columns", [80, 110, 140])
def test_a_group_fits_and_breaks_no_name(columns: int, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = shown(capsys, "sampler")
    assert max(map(len, text.splitlines())) <= columns
    for name in files.options("sampler", FOLDERS):
        assert re.search(rf"^{name}  ", text, re.MULTILINE), name


def test_an_option_has_formula_use_source_keys_and_commands(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "sampler=mode")
    assert "s = (1 + k) w - k sin^2(pi w/2)" in text
    assert re.search(r"^use\n    on cosine and rectified flow", text, re.MULTILINE)
    assert re.search(r"^source\n    Esser et al. 2024$", text, re.MULTILINE)
    assert re.search(r"^    scale=1.29 +k in ", text, re.MULTILINE)
    assert "    diffusion-lab show sampler=mode\n" in text
    assert shown(capsys, "mode") == text


@pytest.mark.parametrize("columns", [80, 100])
def test_a_list_inside_a_formula_keeps_its_columns_and_a_long_formula_is_divided_at_its_gaps(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = shown(capsys, "sampler=clts", "prediction=edm").split("\n")
    assert all(len(line) <= columns for line in lines)
    first = lines.index("        renormalize         N_t = phi_t/m")
    column = lines[first].index("N_t")
    rest = lines[first : lines.index("", first)]
    assert [line[:column].split() for line in rest if line[:column].strip()] == [
        ["renormalize"],
        ["renormalize_after"],
        ["clamp"],
    ]
    assert {len(line) - len(line.lstrip()) for line in rest} == {8, column}
    formula = next(k for k, line in enumerate(lines) if line.startswith("        F = (sigma x0 - alpha d^2 eps)/(d r)"))
    assert lines[formula + 1].startswith("            ")


def test_a_method_sets_parts_of_parts_and_what_the_method_that_it_extends_sets() -> None:
    sets = described("method", "infonoise", FOLDERS).option.sets
    assert (sets["sampler"], sets["sampler@sampler.warmup"]) == ("infonoise", "log_normal")
    shuffled = described("method", "learned_beta_shuffled", FOLDERS).option.sets
    assert (shuffled["sampler"], shuffled["sampler/rewards"]) == ("learned_beta", "shuffled")


def test_a_name_of_several_groups_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Of the same name: method=min_snr" in shown(capsys, "min_snr")
    several = shown(capsys, "edm")
    assert all(f"{group}=edm" in several for group in ("schedule", "prediction", "weighting", "preconditioning"))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("sampelr", "use sampler"),
        ("sampler=mod", "must name an option of sampler; use mode"),
        ("min_snrr", "weighting=min_snr"),
        ("smapler=mode", "must name a group before the =; use sampler"),
        ("qqqq", "`diffusion-lab list` has all of them"),
    ],
)
def test_a_word_that_names_nothing_is_one_sentence(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", word]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"config error: list {word} must name") and said in error and error.count("\n") == 1


def test_a_users_own_part_is_read_and_not_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "conf" / "sampler").mkdir(parents=True)
    (tmp_path / "conf" / "sampler" / "mine.yaml").write_text("_target_: my_part.Mine\nwidth: 0.5 # of the window\n")
    (tmp_path / "my_part.py").write_text(
        "raise SystemExit('imported')\n"
        "class Base:\n    '''Base.\n\n    Args:\n        width: w in (0, 1].\n    '''\n"
        "class Mine(Base):\n    '''p_t = 1/w in a window (Doe 2021).\n\n    Use: never.\n    '''\n"
        "    def __init__(self, width: float, start: int = 3): ...\n"
    )
    text = shown(capsys, "sampler=mine", "--config-dir", str(tmp_path / "conf"))
    assert "p_t = 1/w in a window (Doe 2021)." in text and "Doe 2021" in text.partition("source")[2]
    assert "w in (0, 1]." in text and "of the window" not in text and "start=3" in text
    assert main(["list", "--config-dir", str(tmp_path / "none")]) == 2
    assert "must be a folder with your own yaml files" in capsys.readouterr().err


def test_parts_inside_a_file_have_keys_and_texts_and_a_file_that_extends_it_changes_them() -> None:
    def settings(group: str, name: str) -> dict[str, tuple[str, str]]:
        return {one.name: (one.default, one.comment) for one in described(group, name, FOLDERS).settings}

    large, small = settings("dataset", "imagenet128"), settings("dataset", "imagenet64")
    assert (large["source.image_size"][0], small["source.image_size"][0]) == ("128", "64")
    assert large["source.image_size"][1] == small["source.image_size"][1] != ""
    assert settings("dataset", "celebahq256_latent")["source.images.image_size"][0] == "256"
    assert settings("callbacks", "pruned")["ema.rule"][1].endswith("null: `ConstantDecay`.")


@pytest.mark.parametrize("indent", [2, 4])
def test_a_file_is_read_as_yaml_and_not_by_its_look(tmp_path: Path, indent: int) -> None:
    """With four spaces the keys of a part were lost, and a value ended at a # within quotes."""
    below = "\n".join(" " * indent + line for line in ("_target_: mine.Base", "mean: 0.5 # where"))
    text = f"# Mine.\n_target_: mine.Sampler\nbase: # another\n{below}\nlist: [1,\n  2] # two\nname: 'a # b'\n'a-b':\n"
    text += "one: &x 3 # anchor\ntwo: *x # alias\nthree: | # block\n  words\nfour: [1, # inside\n  2]\n"
    (tmp_path / "sampler" / ".ipynb_checkpoints").mkdir(parents=True)
    (tmp_path / "sampler" / "mine.yaml").write_text(text)
    (tmp_path / "sampler" / ".ipynb_checkpoints" / "mine.yaml").write_text(text)
    found = files.read_option("sampler", "mine", [tmp_path])
    assert [(key.name, key.default, key.comment) for key in found.keys] == [
        ("base", "mine.Base", "another"),
        ("base.mean", "0.5", "where"),
        ("list", "[1, 2]", "two"),
        ("name", "a # b", ""),
        ("a-b", "null", ""),
        ("one", "3", "anchor"),
        ("two", "*x", "alias"),
        ("three", "words", "block"),
        ("four", "[1, 2]", ""),
    ]
    assert found.inside == {"base": "mine.Base"} and found.target == "mine.Sampler"
    assert not [name for name in files.groups([conf_dir(), tmp_path]) if "ipynb" in name]


@pytest.mark.parametrize("entry", ["nothere", "/sampler/nothere"])
def test_a_file_that_extends_one_that_is_not_there_is_one_sentence(
    entry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sampler").mkdir()
    (tmp_path / "sampler" / "mine.yaml").write_text(f"# Mine.\ndefaults:\n  - {entry}\n_target_: mine.Sampler\n")
    for words in (["sampler=mine"], ["sampler"]):
        assert main(["list", *words, "--config-dir", str(tmp_path)]) == 2
        assert "mine.yaml: defaults: " in (said := capsys.readouterr().err) and "must be a file of sampler (" in said


def test_a_file_that_is_not_yaml_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sampler").mkdir()
    (tmp_path / "sampler" / "mine.yaml").write_text("_target_: a.B\nx: [1,\n")
    assert main(["list", "sampler=mine", "--config-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert re.search(r"mine\.yaml must be yaml \(.*line 3.*\); correct it", said) and said.count("\n") == 1


def test_a_file_extends_one_of_another_group_by_its_name_from_the_top(tmp_path: Path) -> None:
    (tmp_path / "sampler").mkdir()
    (tmp_path / "sampler" / "mine.yaml").write_text("# Mine.\ndefaults:\n  - /weighting/min_snr\n")
    found = files.read_option("sampler", "mine", [conf_dir(), tmp_path])
    assert found.target.endswith("MinSNR")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys\nfrom diffusion_lab.cli.main import main\n"
        "main(['list', 'sampler']); main(['list', 'sampler=mode'])\n"
        f"heavy = {HEAVY} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_words_are_completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for line, expected in {
        "diffusion-lab list sampl": {"sampler", "sampler/distribution", "sampler/rewards"},
        "diffusion-lab list sampler=mo": {"sampler=mode"},
    }.items():
        monkeypatch.setenv("COMP_LINE", line)
        assert main(["-sc", "query=bash"]) == 0
        assert set(capsys.readouterr().out.split()) == expected


def test_references_in_a_default_are_words() -> None:
    assert readable("${schedule}") == "the run's schedule"
    assert readable("${share:0.1,${max_steps}}") == "0.1 * max_steps"
    assert readable("${at_most:${dataset.train_images},50000}") == "min(dataset.train_images, 50000)"
    assert readable("0.5") == "0.5"


def test_a_docstring_has_parts_and_papers() -> None:
    doc = parse(
        "Purpose.\n\n    y = x\n\nUse: when\nneeded.\n\nSource: Doe 2020,\nsection 3.\n\n"
        "Args:\n    a: first,\n        longer.\n    b: second.\n\nRaises:\n    ValueError: never.\n"
    )
    assert doc.body == ("Purpose.", "    y = x") and doc.use == "when needed." and doc.source == "Doe 2020, section 3."
    assert doc.args == {"a": "first, longer.", "b": "second."}
    assert citations("Ho et al. (2020) and Salimans & Ho 2022, Ho et al. 2020") == [
        "Ho et al. 2020",
        "Salimans & Ho 2022",
    ]


def test_a_name_is_found_where_it_is_defined() -> None:
    one = find("diffusion_lab.timesteps.Mode")
    assert one is not None and one.name == "diffusion_lab.timesteps.continuous.Mode"
    assert one.arguments()["scale"] == "1.29" and find("diffusion_lab.timesteps.Nothing") is None
    adam = find("torch.optim.Adam")  # of a library, read and not imported
    assert adam is not None and adam.name == "torch.optim.adam.Adam" and find("numpy.ndarray") is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "but there is no lost_part.py in the working folder, or in or beside a --config-dir"),
        ("class Mine:\n    def broken(:\n", "lost_part.py line 2 is no Python: invalid syntax"),
        ("class Other: ...\n", "lost_part.py has no class or function Mine"),
    ],
)
def test_a_users_own_part_without_its_source_says_why(
    content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf" / "sampler").mkdir(parents=True)
    (tmp_path / "conf" / "sampler" / "mine.yaml").write_text("_target_: lost_part.Mine\nwidth: 0.5\n")
    if content is not None:
        (tmp_path / "lost_part.py").write_text(content)
    text = shown(capsys, "sampler=mine", "--config-dir", str(tmp_path / "conf"))
    assert why in " ".join(text.partition("where")[2].split()), text


def test_a_metric_says_which_side_is_better_its_units_and_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measures(*words: str) -> str:
        return shown(capsys, *words).partition("measures\n")[2].partition("\n")[0].strip()

    assert measures("metric=psnr") == "higher is better; in dB; from pairs"
    assert measures("metric=precision") == "higher is better; from features"  # two of them in its base
    assert measures("metric=sample_variance") == "neither side is better; from samples"
    (tmp_path / "conf" / "metric").mkdir(parents=True)
    (tmp_path / "conf" / "metric" / "mine.yaml").write_text("_target_: own_metric_part.Mine\n")
    (tmp_path / "own_metric_part.py").write_text(
        "class Mine:\n    name: str = 'mine'\n    better = min(['lower'])\n    needs = {'logits', 'samples'}\n"
    )
    assert measures("metric=mine", "--config-dir", str(tmp_path / "conf")) == "from logits, samples"
