"""Pieces, files and progress of an analysis."""

import json
import math
import zipfile

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from diffusion_lab.analyses import Analysis, Result, Work, perform
from diffusion_lab.analyses.base import pack, read_arrays, unpack
from diffusion_lab.failure import WrongResult
from diffusion_lab.runs.analyses import read_analyses
from diffusion_lab.streams import Streams
from diffusion_lab.training.trained_model import digest, labels
from tests.analyses.models import Constant, source, trained


def test_arrays_come_back_and_no_clock_is_in_the_file(tmp_path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False]), "c/d": np.float32(3)}
    (tmp_path / "x.npz").write_bytes(pack(arrays))
    found = np.load(tmp_path / "x.npz")
    for name, array in arrays.items():
        assert np.array_equal(found[name], array) and found[name].dtype == array.dtype
    with zipfile.ZipFile(tmp_path / "x.npz") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_objects_are_neither_written_nor_read(tmp_path):
    with pytest.raises(ValueError, match="allow_pickle"):
        pack({"evil": np.array([print], dtype=object)})
    np.savez(tmp_path / "evil.npz", evil=np.array([print], dtype=object))
    assert read_arrays(tmp_path / "evil.npz") is None


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", pack({"a": np.zeros(9)})[:-40], b"\x80\x04N."])
def test_what_is_damaged_is_not_there(content, tmp_path):
    with pytest.raises(ValueError):
        unpack(content)
    (tmp_path / "x.npz").write_bytes(content)
    assert read_arrays(tmp_path / "x.npz") is None and read_arrays(tmp_path / "missing.npz") is None


def test_a_finished_task_is_not_computed_again(tmp_path):
    called = []

    def square(i):
        called.append(i)
        if i == 2 and called.count(2) == 1:
            raise KeyboardInterrupt
        return {"square": np.array(i * i)}

    work = Work(tmp_path, Streams(0))
    with pytest.raises(KeyboardInterrupt):
        work.map("squares", square, [(i,) for i in range(4)])
    assert called == [0, 1, 2]
    (tmp_path / "squares-000001.npz").write_bytes(b"damaged")
    found = work.map("squares", square, [(i,) for i in range(4)])
    assert [int(piece["square"]) for piece in found] == [0, 1, 4, 9]
    assert called == [0, 1, 2, 1, 2, 3]
    assert [int(piece["cube"]) for piece in work.map("cubes", lambda i: {"cube": np.array(i**3)}, [(2,)])] == [8]


def test_stacked_pieces_have_the_axes_of_their_loops_in_front(tmp_path):
    def one(i, j):
        return {"sum": np.array([i, j, i + j]), "product": np.array(i * j)}

    found = Work(tmp_path, Streams(0)).stacked("pieces", one, 2, 3)
    assert found["sum"].shape == (2, 3, 3) and found["sum"][1, 2].tolist() == [1, 2, 3]
    assert found["product"].tolist() == [[0, 0, 0], [0, 1, 2]]
    pieces = Work(tmp_path, Streams(0)).nested("pieces", one, 2, 3)  # finished ones
    assert [[int(piece["product"]) for piece in some] for some in pieces] == [[0, 0, 0], [0, 1, 2]]


class Sum(Analysis):
    """Counts its runs."""

    runs = 0

    def run(self, trained, work):
        type(self).runs += 1
        return Result({"sum": np.array(sum(m.denoiser.network.value.item() for m in trained))}, {"pair": (1, 2)})

    def figure(self, result):
        return Figure()

    def sentence(self, result):
        return f"The sum is {float(result.data['sum'])}, {result.facts['pair']}."


def test_a_complete_analysis_is_computed_again_only_for_another_protocol(tmp_path, caplog):
    Sum.runs, folder, data = 0, tmp_path / "analyses" / "sum", source()
    one = [trained(Constant(1.0), data)]
    assert perform(Sum(), one, folder, {}) == "The sum is 1.0, [1, 2]."
    facts = json.loads((folder / "facts.json").read_text())
    assert facts["sentence"] == "The sum is 1.0, [1, 2]." and facts["facts"] == {"pair": [1, 2]}
    assert facts["protocol"]["models"][0]["config_hash"] == "a" * 64 and facts["protocol"]["models"][0]["step"] == 1
    perform(Sum(), one, folder, {})
    assert Sum.runs == 1 and not caplog.text
    for runs, (models, settings, seed, differs) in enumerate(
        [
            ([trained(Constant(2.0), data)], {}, 0, "models"),  # same run and step, other weights
            ([trained(Constant(2.0), data, step=2)], {}, 0, "models"),
            (one, {}, 0, "models"),
            (one, {"n": 1}, 0, "n"),
            (one, {"n": 1, "analysis": {"bins": 3}}, 1, "seed, bins"),
            (one, {"n": 1}, 1, ""),
        ],
        start=2,
    ):
        perform(Sum(), models, folder, settings, seed)
        assert Sum.runs == runs
        assert not differs or f"differs in {differs} and is replaced; outdir=DIR keeps both" in caplog.messages[-1]
    (folder / "data.npz").write_bytes(pack({"sum": np.array(99.0)}))  # not what facts.json was written with
    assert perform(Sum(), one, folder, {"n": 1}, 1) == "The sum is 1.0, [1, 2]." and Sum.runs == 8


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"sum": np.float64(math.nan), "t": np.arange(3)}, True),
        ({"sum": np.array([math.nan, math.inf]), "empty": np.zeros(0)}, True),
        ({"sum": np.array([math.nan, 1.0])}, False),
        ({"sum": np.arange(1)}, False),
    ],
)
def test_an_analysis_without_a_finite_number_says_so_in_its_sentence(data, said, tmp_path):
    class Own(Sum):
        def run(self, trained, work):
            return Result(data, {"pair": [1, 2]})

        def sentence(self, result):
            return "The sum."

    sentence = perform(Own(), [trained(Constant(1.0), source(4))], tmp_path / "own", {})
    assert sentence.endswith("The sum.")
    assert sentence.startswith("None of the measured numbers is finite") is said
    assert json.loads((tmp_path / "own" / "facts.json").read_text())["sentence"] == sentence


def test_facts_are_written_last(tmp_path, monkeypatch):
    """A kill between the files leaves no analysis, instead of a figure with another's sentence."""

    folder, data = tmp_path / "analyses" / "sum", source()
    perform(Sum(), [trained(Constant(1.0), data)], folder, {})
    assert [one.name for one in read_analyses(tmp_path)] == ["sum"]

    def interrupted(*_: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(perform.__globals__, "write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        perform(Sum(), [trained(Constant(2.0), data)], folder, {})
    assert read_analyses(tmp_path) == []


@pytest.mark.parametrize("content", ["[]", "{", '{"sentence": 3, "protocol": {}}', '{"sentence": "x", "protocol": 3}'])
def test_damaged_facts_are_left_out(content, tmp_path):
    folder = tmp_path / "analyses" / "x"
    folder.mkdir(parents=True)
    (folder / "figure.svg").write_bytes(b"<svg/>")
    (folder / "facts.json").write_text(content)
    assert read_analyses(tmp_path) == []
    (folder / "facts.json").write_text('{"sentence": "A.", "protocol": {"models": [3, {"run": "r", "step": 1}]}}')
    (one,) = read_analyses(tmp_path)
    assert one.sentence == "A." and one.models[1].startswith("r, step 1")


def test_digests_tell_weights_apart():
    state = {"a": torch.zeros(3), "b": torch.ones(2, dtype=torch.int64)}
    assert digest(state) == digest({key: value.clone() for key, value in state.items()})
    for key, value in (("a", torch.tensor([0.0, 0.0, 1e-30])), ("b", torch.tensor([1, 2])), ("c", torch.zeros(3))):
        assert digest(state | {key: value}) != digest(state)


def test_labels_say_what_differs():
    data = source()

    def model(folder, step):
        return trained(Constant(), data, folder=folder, step=step)

    assert labels([model("x/a", 1), model("x/a", 20)]) == ["step 1", "step 20"]
    assert labels([model("x/a", 1), model("x/b", 1)]) == ["a", "b"]
    assert labels([model("x/a", 1), model("y/a", 1)]) == ["x/a", "y/a"]
    assert labels([model("a", 1), model("a", 2), model("b", 1)]) == ["a, step 1", "a, step 2", "b, step 1"]


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ({"a": 1}, r"run must return Result\(.*, and returned dict {'a': 1}; correct it in "),
        (Result([1], {}), r"run must return Result\(data, facts\) with arrays by name as data, and returned list"),
        (Result({"a": np.ones(1)}, {"b": np.ones(1)}), r"run must return Result\(data, facts\) with plain values"),
    ],
)
def test_what_is_no_result_is_named_with_its_class(result, wanted, tmp_path):
    class Own(Sum):
        def run(self, trained, work):
            return result

    with pytest.raises(WrongResult, match=rf"Own\.{wanted}"):
        perform(Own(), [trained(Constant(1.0), source(4))], tmp_path, {})


@pytest.mark.parametrize("returned", [0.5, None, [np.zeros(2)], {"a": [[1], [2, 3]]}, {"a": print}, {1: np.zeros(2)}])
def test_a_task_that_returns_no_arrays_by_name_is_told_what_it_must_return(returned, tmp_path):
    words = (
        r"^the function of work.map\('pieces', ...\) must return \{name: array\}, a dict of NumPy arrays, and returned"
    )
    with pytest.raises(WrongResult, match=words):
        Work(tmp_path, Streams(0)).map("pieces", lambda: returned, [()])
    assert not list(tmp_path.iterdir())


def test_the_numbers_of_an_analysis_are_drawn_on_the_host_whatever_the_device(tmp_path):
    """A probe that is given `work.streams` draws as `work.normal` does; on a GPU it had drawn other noise."""
    streams = Work(tmp_path, Streams(3), "meta").streams
    assert streams.normal((2,), "timesteps", -1, 0, device="meta").device.type == "meta"
    assert streams.uniform(2, "timesteps", 0, device="meta").device.type == "meta"
    assert torch.equal(streams.normal((2,), "timesteps", -1, 0), Streams(3).normal((2,), "timesteps", -1, 0))
    with pytest.raises(RuntimeError):  # a run's own streams draw on the device
        Streams(3).normal((2,), "timesteps", -1, 0, device="meta")
