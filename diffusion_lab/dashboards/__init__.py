"""Dashboards in Weights & Biases as plain data: panels, the sections of a dashboard, and sweeps that repeat runs."""

from diffusion_lab.dashboards.grids import Grid, grids
from diffusion_lab.dashboards.layout import Section, sections
from diffusion_lab.dashboards.logged import Logged, expected, logged_by
from diffusion_lab.dashboards.panels import Bars, Chart, Lines, Panel, Pictures
from diffusion_lab.dashboards.sweep_file import SWEEP_HEAD, sweep_file
from diffusion_lab.dashboards.workspace import (
    Selection,
    Workspace,
    check_installed,
    specification,
    upload,
    write_specification,
)

__all__ = [
    "SWEEP_HEAD",
    "Bars",
    "Chart",
    "Grid",
    "Lines",
    "Logged",
    "Panel",
    "Pictures",
    "Section",
    "Selection",
    "Workspace",
    "check_installed",
    "expected",
    "grids",
    "logged_by",
    "sections",
    "specification",
    "sweep_file",
    "upload",
    "write_specification",
]
