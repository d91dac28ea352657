"""Turns results into tables and statements."""

from ablate.report.layers import Line, layers_table, lines
from ablate.report.results_table import results_table
from ablate.report.summary import Row, shown_levels, summarise
from ablate.report.tables import FORMATS, Table, render

__all__ = [
    "FORMATS",
    "Line",
    "Row",
    "Table",
    "layers_table",
    "lines",
    "render",
    "results_table",
    "shown_levels",
    "summarise",
]
