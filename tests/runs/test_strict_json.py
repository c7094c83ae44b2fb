"""Every file of a run folder is JSON that any program reads: what is not finite is null, and read as NaN."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffusion_lab.analyses.base import pack
from diffusion_lab.analyses.perform import _complete, _digest, write_facts
from diffusion_lab.files import json_text, parse, read_object, write_json
from diffusion_lab.loggers import JsonlLogger
from diffusion_lab.runs.curve import columns
from diffusion_lab.runs.lines import append_lines, read_lines
from diffusion_lab.runs.record import read_record, write_record, write_result
from diffusion_lab.runs.signature import is_own
from diffusion_lab.timesteps.slots import _of_ranges

NAN, INF = float("nan"), float("inf")


def strict(text: str) -> Any:
    """As a program reads it that knows only JSON."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_not_finite_is_null_and_texts_stay() -> None:
    words = {"NaN": 'NaN, "Infinity" and \\', "a": [NAN, INF, -INF, 1.5], "-Infinity": {"b": NAN}}
    assert strict(json_text(words)) == {
        "NaN": 'NaN, "Infinity" and \\',
        "a": [None, None, None, 1.5],
        "-Infinity": {"b": None},
    }
    assert parse(json_text([INF, -INF, 2.0], infinity="1e999")) == [INF, -INF, 2.0]


def test_the_logs_of_a_run_are_json_and_read_back(tmp_path: Path) -> None:
    logger = JsonlLogger(tmp_path)
    logger.log_values({"val/loss_t": np.array([1.03, NAN]), "val/loss": NAN, "metrics/fid": INF}, 2)
    logger.log_values({"val/loss_t": np.array([1.0, 2.0]), "val/loss": 0.5}, 4)
    append_lines(tmp_path / "evaluations.jsonl", [{"step": 4, "name": "fid", "value": INF, "protocol": {}}])
    write_result(tmp_path, "done", 4)
    for path in tmp_path.iterdir():
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            strict(line)
    rows = read_lines(tmp_path / "metrics.jsonl")
    np.testing.assert_array_equal(columns(rows)["val/loss_t"].curve(1).values, [[1.03, NAN], [1.0, 2.0]])
    np.testing.assert_array_equal(columns(rows)["val/loss"].curve(1).values, [NAN, 0.5])
    assert (read_object(tmp_path / "result.json") or {})["metrics"] == {"val/loss": 0.5, "metrics/fid": None}
    append_lines(place := tmp_path / "last.jsonl", [{"step": 6, "val/loss_t": [1.0, NAN]}])
    assert math.isnan(_of_ranges(place)[1])


def test_a_setting_that_is_infinite_is_read_back_and_stays_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    write_record(tmp_path, {"config": {"s_max": INF, "low": -INF}}, own=True)
    strict((tmp_path / "run.json").read_text())
    record = read_record(tmp_path, "run")
    assert record["config"] == {"s_max": INF, "low": -INF} and is_own(record)


def test_the_facts_of_an_analysis_are_read_back_as_they_were(tmp_path: Path) -> None:
    facts = {"a": [{"b": NAN, "c": None}, INF], "d": 1.0}
    protocol, data = {"seed": 0}, pack({"x": np.zeros(1)})
    (tmp_path / "data.npz").write_bytes(data)
    content = {"facts": facts, "protocol": protocol, "data": _digest(data)}
    write_facts(tmp_path, content)
    strict((tmp_path / "facts.json").read_text())
    again = _complete(tmp_path, protocol)
    assert again is not None and repr(again.facts) == repr(facts)
    write_json(tmp_path / "facts.json", content | {"nan": [["z"], 3]})  # from anybody
    assert _complete(tmp_path, protocol) is None
