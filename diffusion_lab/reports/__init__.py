"""Reports: a folder of runs, finished or not, as a table and one self-contained page. Imports no torch."""

from diffusion_lab.reports.groups import Group, group_runs
from diffusion_lab.reports.html import page, write_figures, write_page
from diffusion_lab.reports.runs import STATUSES, Run, RunFolder
from diffusion_lab.reports.scan import read_run, read_runs
from diffusion_lab.reports.tables import Row, choose_metric, summarise

__all__ = [
    "STATUSES",
    "Group",
    "Row",
    "Run",
    "RunFolder",
    "choose_metric",
    "group_runs",
    "page",
    "read_run",
    "read_runs",
    "summarise",
    "write_figures",
    "write_page",
]
