"""What it means: results to tables."""

from ablate.report.grid import FORMATS, Grid, render
from ablate.report.summary import Row, summarise
from ablate.report.table import results_grid

__all__ = ["FORMATS", "Grid", "Row", "render", "results_grid", "summarise"]
