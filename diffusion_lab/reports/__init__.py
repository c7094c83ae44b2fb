"""Reports: a folder of runs, finished or not, as a table and one self-contained page. Does not import torch."""

from diffusion_lab.reports.beyond import beyond
from diffusion_lab.reports.cells import Comparison, compare
from diffusion_lab.reports.differences import Difference, Reading, differences
from diffusion_lab.reports.fragment import check_suffix, write_table
from diffusion_lab.reports.groups import Group, group_runs
from diffusion_lab.reports.html import Report, make_report, page, write_figures, write_page
from diffusion_lab.reports.per_seed import write_per_seed
from diffusion_lab.reports.sections import Section, sections_of
from diffusion_lab.reports.tables import Row, choose_metric, summarise, with_baseline
from diffusion_lab.runs.find import read_run, read_runs
from diffusion_lab.runs.run import Run

__all__ = [
    "Comparison",
    "Difference",
    "Group",
    "Reading",
    "Report",
    "Row",
    "Run",
    "Section",
    "beyond",
    "check_suffix",
    "choose_metric",
    "compare",
    "differences",
    "group_runs",
    "make_report",
    "page",
    "read_run",
    "read_runs",
    "sections_of",
    "summarise",
    "with_baseline",
    "write_figures",
    "write_page",
    "write_per_seed",
    "write_table",
]
