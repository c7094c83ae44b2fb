"""The jobs of a crossed study."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.cli.sweep_jobs import jobs_of, split_values
from hydra_plugins.diffusion_lab_sweeper.listed import ListedSweeper, words_of
from hydra_plugins.diffusion_lab_sweeper.products import ProductsSweeper

PRODUCTS = [
    {"schedule": "linear, cosine", "sampler": "uniform,speed"},
    {"schedule": "cosine", "sampler": "uniform", "weighting": "min_snr"},
    {"schedule": "cosine", "sampler": "speed"},  # in the first product too
]


def cells(*words: str) -> list[list[str]]:
    return list(jobs_of(PRODUCTS, {"seed": "0,1"}, words))


def test_the_union_of_products_has_each_job_once_and_the_seeds_outermost() -> None:
    grid = [[f"schedule={a}", f"sampler={b}"] for a in ("linear", "cosine") for b in ("uniform", "speed")]
    wanted = [*grid, ["schedule=cosine", "sampler=uniform", "weighting=min_snr"]]
    assert cells() == [[f"seed={seed}", *cell] for seed in (0, 1) for cell in wanted]


def test_a_word_narrows_the_products_that_sweep_it_and_goes_to_all_otherwise() -> None:
    assert cells("schedule=linear", "seed=1") == [
        ["seed=1", "schedule=linear", f"sampler={b}"] for b in ("uniform", "speed")
    ]
    assert all(job[0] == "max_steps=5" for job in cells("max_steps=5")) and len(cells("max_steps=5")) == 10
    assert cells("sampler=clts") == []
    assert cells("seed=10", "sampler=speed,speed_up")[0] == ["seed=10", "schedule=linear", "sampler=speed"]
    assert cells("schedule=linear_damped") == []  # a value is named as a whole
    # One product sweeps it, in the others it is a setting, and one of their jobs is that product's.
    assert len(cells("weighting=min_snr")) == 8 and all(
        "weighting=min_snr" in job for job in cells("weighting=min_snr")
    )


def test_a_word_with_several_values_is_swept_within_each_product() -> None:
    """It went to every job as one value."""
    jobs = cells("optimizer.lr=1,2", "seed=0", "sampler=uniform")
    assert [job[-1] for job in jobs] == ["optimizer.lr=1", "optimizer.lr=2"] * 3
    assert all(not word.endswith("1,2") for job in jobs for word in job)
    found = {tuple(job[2:]) for job in cells("weighting=p2,min_snr", "seed=0", "schedule=cosine", "sampler=speed")}
    assert found == {("sampler=speed", "weighting=p2"), ("sampler=speed", "weighting=min_snr")}


def test_a_comma_within_brackets_or_quotes_is_part_of_one_value() -> None:
    jobs = cells("metrics.names=[fid,kid]", "name='a,b'", "seed=0", "sampler=uniform")
    assert all(job[:2] == ["metrics.names=[fid,kid]", "name='a,b'"] for job in jobs)
    assert [job[-1] for job in jobs_of([{"metrics.names": "[fid,kid],[fid]"}], {})] == [
        "metrics.names=[fid,kid]",
        "metrics.names=[fid]",
    ]


@pytest.mark.parametrize(
    ("values", "word"), [("true,false", "true"), ("1e-3,2e-3", "1e-3"), ("0.10,0.2", "0.10"), ("0.00001,1", "0.00001")]
)
def test_values_are_compared_and_kept_as_they_are_typed(values: str, word: str) -> None:
    assert list(jobs_of([{"x": values}], {}, [f"x={word}"])) == [[f"x={word}"]]
    assert list(jobs_of([{"x": values}, {"x": word}], {})) == [[f"x={one}"] for one in values.split(",")]


def test_ranges_and_choices_are_swept() -> None:
    assert [job[0] for job in cells("seed=range(0,2)", "schedule=linear", "sampler=speed")] == ["seed=0", "seed=1"]
    lr = [job[-1] for job in cells("lr=choice(1,2)", "seed=0", "schedule=linear", "sampler=speed")]
    assert lr == ["lr=1", "lr=2"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b,c", ["a", "b", "c"]),
        ("[a,b],c", ["[a,b]", "c"]),
        ("{a: [1,2], b: 3}", ["{a: [1,2], b: 3}"]),
        ("'a,b',\"c,'d\",e", ["'a,b'", '"c,\'d"', "e"]),
        ("'(',a", ["'('", "a"]),
        (r"a\,b,c", [r"a\,b", "c"]),
        ("", [""]),
    ],
)
def test_commas_within_brackets_and_quotes_part_nothing(text: str, parts: list[str]) -> None:
    assert split_values(text) == parts


def test_other_seeds_can_be_added_to_a_study() -> None:
    narrowed = ("schedule=linear", "sampler=speed")
    assert cells("seed=5,6", *narrowed) == [[f"seed={seed}", *narrowed] for seed in (5, 6)]


def test_without_products_it_is_the_product_of_the_parameters() -> None:
    jobs = list(jobs_of([], {"seed": "0,1", "method": "a,b"}))
    assert jobs == [[f"seed={s}", f"method={m}"] for s, m in itertools.product("01", "ab")]


def test_null_stays_null_and_a_product_is_a_mapping() -> None:
    assert list(jobs_of([{"coupling": None, "seed": "0,1"}], None)) == [
        ["coupling=null", "seed=0"],
        ["coupling=null", "seed=1"],
    ]
    with pytest.raises(ConfigError, match="^hydra.sweeper.products must be a list of mappings, and has seed; use"):
        ProductsSweeper(["seed"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("seed=0  # Choi's setting", ["seed=0"]),
        ("seed=0 #it's", ["seed=0"]),
        ("# don't", []),
        ("dataset.root='a b' name=x#y", ["dataset.root=a b", "name=x#y"]),
    ],
)
def test_comments_of_a_file_of_jobs_may_have_an_apostrophe(line: str, words: list[str]) -> None:
    assert words_of(line) == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed=0\nseed='0", "must have words of a shell on line 2 \\(No closing quotation\\); quote the value"),
        ("seed=0\n\nseed=0,1", "must have one value of each key on line 3, and has seed=0,1; write a line for each"),
    ],
)
def test_a_line_of_a_file_that_is_no_job_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text(text)
    with pytest.raises(ConfigError, match=said):
        ListedSweeper(str(tmp_path / "jobs"))
    (tmp_path / "jobs").write_text("seed=0 dataset.crop=[1,2]  # one value\n")
    assert ListedSweeper(str(tmp_path / "jobs")).jobs == [["seed=0", "dataset.crop=[1,2]"]]
