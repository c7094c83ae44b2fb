"""The numbers of a column as a picture: for rows that are several numbers of the same runs, such as ends of slots."""

from __future__ import annotations

import numpy as np

from diffusion_lab.plotting import data_uri, line_style, log_if_wide, panels, style
from diffusion_lab.reports.figures import Figure
from diffusion_lab.tables.results import Results
from diffusion_lab.tables.table import Column, cell_titles


def numbers(results: Results, column: Column) -> Figure | None:
    """Measured, published, and what the rows are compared with, over the rows; None without two numbers."""
    title = cell_titles(column)[-1]
    cells = [cell for cell in results.cells if (cell.column, cell.cell) == (column, title)]
    measured = {k: cell.mean.mean for k, cell in enumerate(cells) if cell.mean is not None}
    if len(measured) < 2:
        return None
    published = {k: cell.published for k, cell in enumerate(cells) if cell.published is not None}
    others = {k: c.row.against[column.name] for k, c in enumerate(cells) if column.name in c.row.against}
    lines = {"measured": measured, "published": published, results.table.against: others}
    with style():
        figure, (axis, *_) = panels(1, height=3.6)
        for i, (name, points) in enumerate(lines.items()):
            if points:
                color, dash = line_style(i)
                axis.plot(list(points), list(points.values()), color=color, linestyle=dash, marker="o", label=name)
        axis.set_xticks(range(len(cells)), [cell.row.title for cell in cells], rotation=30, ha="right")
        axis.set_ylabel(results.values.quantity)
        log_if_wide(axis, [np.array(list(points.values())) for points in lines.values() if points])
        axis.legend(fontsize=9)
        image = data_uri(figure)
    shown = ", ".join(name for name, points in lines.items() if points)
    return Figure(f"{column.title[:1].upper()}{column.title[1:]}", f"By row: {shown}; mean over seeds.", image)
