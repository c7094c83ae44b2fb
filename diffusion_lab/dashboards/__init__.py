"""Dashboards in Weights & Biases as plain data: panels, the sections of a dashboard, and sweeps that repeat runs."""

from diffusion_lab.dashboards.layout import Bars, Chart, Lines, Panel, PanelSection, Pictures, sections
from diffusion_lab.dashboards.logged import LoggedKeys, expected, logged_by
from diffusion_lab.dashboards.sweeps import SWEEP_HEAD, Grid, grids, sweep_file
from diffusion_lab.dashboards.workspace import (
    RunSelection,
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
    "LoggedKeys",
    "Panel",
    "Pictures",
    "PanelSection",
    "RunSelection",
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
