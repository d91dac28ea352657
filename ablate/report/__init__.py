"""What it means: results to tables."""

from ablate.report.grid import FORMATS, Grid, render
from ablate.report.layers import Line, layers_grid, lines
from ablate.report.summary import Row, shown_levels, summarise
from ablate.report.table import results_grid

__all__ = [
    "FORMATS",
    "Grid",
    "Line",
    "Row",
    "layers_grid",
    "lines",
    "render",
    "results_grid",
    "shown_levels",
    "summarise",
]
