"""Tables of the papers: rows, columns, published values, what is measured and what it says. Does not import torch."""

from diffusion_lab.tables.measure import Analysed, Entry, LossRatio, Measure, Measured, MetricAtSteps
from diffusion_lab.tables.results import Results, summarise
from diffusion_lab.tables.table import Table, TableColumn, TableModel, TableRow, read_table
from diffusion_lab.tables.table_scale import TableScale, read_table_scale
from diffusion_lab.tables.values import Value, Values

__all__ = [
    "Analysed",
    "TableColumn",
    "Entry",
    "LossRatio",
    "Measure",
    "Measured",
    "MetricAtSteps",
    "TableModel",
    "Results",
    "TableRow",
    "TableScale",
    "Table",
    "Value",
    "Values",
    "read_table_scale",
    "read_table",
    "summarise",
]
