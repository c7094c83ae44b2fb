"""Reports: a folder of runs, finished or not, as a table and one self-contained page. Does not import torch."""

from diffusion_lab.reports.comparison.cells import Comparison, compare
from diffusion_lab.reports.comparison.differences import Difference, RunConfig, differences
from diffusion_lab.reports.comparison.groups import Group
from diffusion_lab.reports.comparison.labels import group_runs
from diffusion_lab.reports.comparison.metrics import choose_metric
from diffusion_lab.reports.comparison.question import Question
from diffusion_lab.reports.comparison.rows import Row, summarise
from diffusion_lab.reports.comparison.sections import Section, sections_of, with_baseline
from diffusion_lab.reports.comparison.sentences import unnamed_differences
from diffusion_lab.reports.pages.files import check_suffix, write_per_seed, write_table
from diffusion_lab.reports.pages.html import Report, make_report, page, write_figures
from diffusion_lab.runs.find import read_run, read_runs
from diffusion_lab.runs.run import Run

__all__ = [
    "Comparison",
    "Difference",
    "Group",
    "Question",
    "RunConfig",
    "Report",
    "Row",
    "Run",
    "Section",
    "unnamed_differences",
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
    "write_per_seed",
    "write_table",
]
