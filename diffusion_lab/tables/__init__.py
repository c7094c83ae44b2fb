"""Tables of the papers: rows, columns, published values, what is measured and what it says. Does not import torch."""

from diffusion_lab.tables.measure import Analysed, Entry, LossRatio, Measure, Measured, MetricAtSteps
from diffusion_lab.tables.results import Results, summarise
from diffusion_lab.tables.scale import Scale, read_scale
from diffusion_lab.tables.table import Column, Model, Row, Table, read_table
from diffusion_lab.tables.values import Value, Values

__all__ = [
    "Analysed",
    "Column",
    "Entry",
    "LossRatio",
    "Measure",
    "Measured",
    "MetricAtSteps",
    "Model",
    "Results",
    "Row",
    "Scale",
    "Table",
    "Value",
    "Values",
    "read_scale",
    "read_table",
    "summarise",
]
