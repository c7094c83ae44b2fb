"""The digest of a finished run has the numbers of its lines, and is never that of other lines."""

import json
import random

import pytest

from diffusion_lab.runs import digest
from diffusion_lab.runs.names import DIGEST, METRICS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Lines with every kind of value that anybody may write."""
    monkeypatch.setattr(digest, "SMALLEST", 1)
    draw, values = random.Random(0), [1, 2.5, None, True, "x", 1e200, [], [1, 2], [1.0, None], [True, 1], {}, 2**63]
    rows = [{"step": draw.randrange(9), "images": draw.choice([0, 7.9, None])} for _ in range(60)]
    lines = [json.dumps(row | {draw.choice("abc"): draw.choice(values)}) for row in rows]
    (tmp_path / METRICS).write_text("\n".join(lines) + "\n")
    return tmp_path


def columns(folder, finished=True):
    """Key -> bytes of its arrays, in which NaN is equal to NaN."""
    found = digest.read_columns(folder, folder, finished)
    return {key: [getattr(column, name).tobytes() for name in digest.TYPES] for key, column in found.items()}


def test_it_has_the_numbers_of_the_lines(folder, monkeypatch):
    parsed = columns(folder, finished=False)
    assert not (folder / DIGEST).exists() and parsed.keys() == {"step", "images", "a", "b", "c"}
    assert columns(folder) == parsed and (folder / DIGEST).is_file()
    monkeypatch.setattr(digest, "rows_of", lambda content: pytest.fail("the lines are parsed again"))
    assert columns(folder) == parsed


def test_another_line_makes_another_digest(folder):
    columns(folder)
    with open(folder / METRICS, "a") as file:
        file.write('{"step": 10, "a": 3}\n')
    assert digest.read_columns(folder, folder, True)["a"].values[-1] == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-3],
        lambda content: content + b"1",
        lambda content: content.partition(b"\n")[0],
        lambda content: content.replace(b'"a"', b"[1]", 1),
        lambda content: content.replace(b"[[", b"[[9], [", 1),
        lambda content: b"\xff\x00",
    ],
)
def test_a_damaged_one_is_replaced(folder, damage):
    parsed, path = columns(folder), folder / DIGEST
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert columns(folder) == parsed and path.read_bytes() == whole


def test_one_that_cannot_be_written_is_done_without(folder):
    (folder / DIGEST).mkdir()
    assert columns(folder) == columns(folder, finished=False)
