"""What `diffusion-lab sample` is asked for."""

import pytest
from omegaconf import OmegaConf

from diffusion_lab.cli.checks.run_arguments import parse_ids
from diffusion_lab.cli.errors import ConfigError
from diffusion_lab.runs.data_record import parse_labels


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("0-3,10", [0, 1, 2, 3, 10]),
        ("[0, 5]", [0, 5]),
        ("7", [7]),
        (" 2 , 4-5", [2, 4, 5]),
        (str(["0-1", 3]), [0, 1, 3]),
    ],
)
def test_ids(text, ids):
    assert parse_ids(text) == ids


@pytest.mark.parametrize("text", ["0,0,1", "0-3,2", "3-1", "a", "", "1.5"])
def test_ids_that_make_no_sense(text):
    with pytest.raises(ConfigError, match=r"^seeds=.* must "):
        parse_ids(text)


def test_labels():
    assert parse_labels(None, 10) == parse_labels(None, None) == []
    assert parse_labels(3, 10) == [3]
    assert parse_labels(OmegaConf.create([3, 5]), 10) == [3, 5]


def test_labels_by_the_names_of_their_classes():
    names = ["cat", "Ankle boot", "dog"]
    assert parse_labels("dog", 3, names) == [2]
    assert parse_labels(OmegaConf.create(["dog", 0, "ankle boot"]), 3, names) == [2, 0, 1]
    assert parse_labels(2, 3, ["2", "3", "10"]) == [2] and parse_labels("2", 3, ["2", "3", "10"]) == [0]
    known = r"^labels=bird must be classes in 0\.\.2 \(0 cat, 1 Ankle boot, 2 dog\); use labels=\[cat,dog\]$"
    with pytest.raises(ValueError, match=known):
        parse_labels("bird", 3, names)
    near = r"^labels=\[cats\] must be classes .* dog\) \(did you mean 'cat'\?\)$"
    with pytest.raises(ValueError, match=near):
        parse_labels(["cats"], 3, names)
    with pytest.raises(ValueError, match=r"^labels=x must be classes in 0\.\.9; use labels=\[0,1\]$"):
        parse_labels("x", 10, [str(i) for i in range(10)])


@pytest.mark.parametrize(("labels", "classes"), [(10, 10), (-1, 10), (True, 10), ([], 10), ("3", 10), ([1, 2.5], 10)])
def test_labels_that_are_no_classes(labels, classes):
    with pytest.raises(ValueError, match=r"^labels=.* must be classes in 0\.\.9"):
        parse_labels(labels, classes)


def test_labels_of_an_unconditional_run():
    with pytest.raises(ValueError, match="^labels=3 must be null"):
        parse_labels(3, None)
