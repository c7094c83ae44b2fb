"""Which of several values of a metric is that at the end."""

from __future__ import annotations

import json
from pathlib import Path

from diffusion_lab.runs.find import read_run
from tests.reports.synthetic import write_run


def test_an_earlier_checkpoint_that_was_measured_later_is_not_the_end(tmp_path: Path) -> None:
    """`evaluate checkpoint=step-..` after `evaluate checkpoint=last`: a report took it for the value at the end."""
    write_run(tmp_path / "run", "uniform", 0, steps=250)
    lines = [
        {"step": step, "name": "mine64", "value": value, "protocol": {"note": note}}
        for step, value, note in ((250, 0.4, "first"), (250, 0.5, "again"), (100, 0.9, "earlier"))
    ]
    with (tmp_path / "run" / "evaluations.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(tmp_path / "run")
    assert (run.last("mine64"), run.step_of_last("mine64")) == (0.5, 250)
    assert run.protocol("mine64") == {"note": "again"}
