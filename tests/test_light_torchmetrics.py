"""Lightning without what torchmetrics imports for metrics that nobody asked for, and torchmetrics whole when asked."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

HEAVY = {"scipy.signal", "torchvision", "torchmetrics.functional", "torchmetrics.image"}
LOOK = """
import json, sys
{first}
import lightning.pytorch as lightning
from lightning.fabric.utilities.imports import _TORCHMETRICS_GREATER_EQUAL_1_0_0
seen = sorted({heavy} & set(sys.modules))
before = lightning.LightningModule.__module__, sys.modules["torchmetrics"].Metric
import torchmetrics
from torchmetrics import Accuracy, functional
accuracy = Accuracy(task="binary")
print(json.dumps({{
    "seen": seen,
    "new enough": _TORCHMETRICS_GREATER_EQUAL_1_0_0,
    "same": before[1] is torchmetrics.Metric is torchmetrics.metric.Metric and isinstance(accuracy, before[1]),
    "collection": torchmetrics.MetricCollection.__module__,
    "names": sorted(name for name in dir(torchmetrics) if not name.startswith("__")),
    "plain": type(torchmetrics).__name__,
    "version": torchmetrics.__version__,
}}))
"""


def _look(first: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", LOOK.format(first=first, heavy=HEAVY)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_lightning_imports_two_classes_and_the_rest_comes_when_it_is_asked_for() -> None:
    deferred = _look("import diffusion_lab")
    assert deferred["seen"] == [] and deferred["new enough"] and deferred["same"] and deferred["plain"] == "module"
    assert {"Accuracy", "functional"} <= set(deferred["names"]) and deferred["collection"].startswith("torchmetrics.")


@pytest.mark.slow
@pytest.mark.exhaustive  # after a new release of torchmetrics
def test_it_is_what_an_import_of_torchmetrics_gives() -> None:
    deferred, usual = _look("import diffusion_lab"), _look("import torchmetrics, diffusion_lab")
    assert deferred.pop("seen") == [] and usual.pop("seen") == sorted(HEAVY)
    assert deferred == usual


def test_what_torchmetrics_has_not_is_an_error_of_its_own() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Acuracy' from 'torchmetrics'"):
        from torchmetrics import Acuracy  # type: ignore[attr-defined]  # noqa: F401
