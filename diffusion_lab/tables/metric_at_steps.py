"""A metric of the samples, such as the Fréchet distance, at the steps of a column."""

from __future__ import annotations

from diffusion_lab.reports.directions import family
from diffusion_lab.runs.curve import finite
from diffusion_lab.tables.measure import Entry, Measure, Measured


class MetricAtSteps(Measure):
    """The metric that was measured of the average weights at each snapshot, with the run's solver and latents that are
    the same for all runs. A value that is not finite, as of a run that diverged, is none.

    Args:
        metric: name of a file in conf/metric; fid is called fd unless the extractor is Inception.
        better: lower or higher.
    """

    def __init__(self, metric: str = "fid", better: str = "lower") -> None:
        self.metric, self.better = metric, better

    def __call__(self, entry: Entry) -> Measured:
        run = entry.runs[0]
        families = {self.metric, {"fid": "fd", "kid": "kd"}.get(self.metric, self.metric)}
        name = next((name for name in run.metric_names if family(name) in families), self.metric)
        found = {line.get("step"): finite(line.get("value")) for line in run.evaluations if line["name"] == name}
        values = [found.get(step) for step in entry.steps]
        return Measured(name, values, run.protocol(name))
