"""Diagnostics by layer: means over seeds, one line a cell."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.records import StudyResults
from ablate.report.grid import Grid
from ablate.report.summary import shown_levels
from ablate.report.table import level_text


@dataclass(frozen=True)
class Line:
    """A diagnostic of one cell: by layer the mean over its seeds (numbers, vectors, or matrices)."""

    cell: int
    label: str
    seeds: int
    layers: Mapping[int, Any]


def lines(results: StudyResults, rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    """One line a cell that has the diagnostic, in the order of the table."""
    labels = {cell.index: _label(results, shown_levels(cell)) for cell in results.cells}
    found: dict[int, dict[int, list[Any]]] = {}
    seeds: dict[int, set[int]] = {}
    for row in rows:
        value = row["value"] if row["value"] is not None else row["numbers"]
        found.setdefault(row["cell"], {}).setdefault(row["layer"], []).append(value)
        seeds.setdefault(row["cell"], set()).add(row["seed"])
    return [
        Line(cell, labels[cell], len(seeds[cell]), {layer: _mean(values) for layer, values in sorted(layers.items())})
        for cell, layers in sorted(found.items())
    ]


def _label(results: StudyResults, levels: Mapping[str, Any]) -> str:
    told = [f"{name.rpartition('.')[2]} {level_text(levels[name])}" for name in results.factors if levels.get(name) is not None]
    return ", ".join(told)


def _mean(values: Sequence[Any]) -> Any:
    """Mean of numbers, or of lists entry by entry."""
    if isinstance(values[0], list):
        return [_mean(entries) for entries in zip(*values, strict=True)]
    return statistics.fmean(values)


def layers_grid(diagnostic: str, about: str, found: Sequence[Line]) -> Grid:
    """Layers as columns, one row a cell; the first, middle and last layers where there are many."""
    depth = max((len(line.layers) for line in found), default=0)
    every = sorted({layer for line in found for layer in line.layers})
    shown = every if depth <= 12 else sorted({every[round(i * (len(every) - 1) / 11)] for i in range(12)})
    columns = ["row", "cell", "seeds", *(f"layer {layer}" for layer in shown)]
    rows = [[str(line.cell), line.label, str(line.seeds), *(_text(line.layers.get(layer)) for layer in shown)] for line in found]
    data = [
        {"row": line.cell, "cell": line.label, "seeds": line.seeds, "layer": layer, diagnostic: value}
        for line in found
        for layer, value in line.layers.items()
    ]
    return Grid(
        columns, rows, data, frozenset(columns) - {"cell"}, f"{diagnostic}: {about}", ["Means over seeds; layers count from 0."]
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float | int) else f"{len(value)} numbers"
