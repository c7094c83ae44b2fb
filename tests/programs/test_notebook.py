"""The cells of docs/notebook.ipynb run, shortened, without Jupyter; what it shows was computed by a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
CELLS = [cell for cell in json.loads(PAGE.read_text())["cells"] if cell["cell_type"] == "code"]
SHORT = [
    ("max_steps=500", "max_steps=4"),
    ("snapshot_every=250", "snapshot_every=2"),
    ("log_every=125", "log_every=2"),
    ("solver.steps=20", "solver.steps=2"),
    ("metrics.names=[fid]", 'metrics.names=[fid]", "metrics.num_samples=128'),
    ("threads=2", "threads=1"),
]


@pytest.mark.pages
@pytest.mark.filterwarnings("ignore")  # of Lightning, and of a figure that has no window
def test_the_cells_run_in_their_order(in_folder: Path) -> None:
    matplotlib.use("Agg")
    values: dict[str, Any] = {}
    for cell in CELLS:
        text = "".join(cell["source"])
        for long, short in SHORT:
            text = text.replace(long, short)
        exec(compile(text, str(PAGE), "exec"), values)
    assert len(values["runs"]) == 6 and len(list((in_folder / "runs").iterdir())) == 6
    assert values["gain"].n == 3


def test_what_it_shows_was_computed() -> None:
    assert [cell["execution_count"] for cell in CELLS] == list(range(1, len(CELLS) + 1))
    outputs = [output for cell in CELLS for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
    said = "".join("".join(output["text"]) for output in outputs if "text" in output)
    values = {name: list(map(float, words.split())) for name, words in re.findall(r"^(\w+) +([\d. ]+)$", said, re.M)}
    means = {name: sum(found) / len(found) for name, found in values.items()}
    (mean,) = re.findall(r"uniform: ([+-][\d.]+) \[", said)
    assert float(mean) == pytest.approx(means["logit_normal"] - means["uniform"], abs=0.02)
