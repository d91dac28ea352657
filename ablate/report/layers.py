"""Diagnostics by layer: means over seeds, one line a cell."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.records import StudyResults
from ablate.report.grid import Grid
from ablate.report.summary import shown_levels
from ablate.report.table import level_text

# Layers that a table shows side by side.
MOST_COLUMNS = 12


@dataclass(frozen=True)
class Line:
    """A diagnostic of one cell: by layer the mean over its seeds (numbers, vectors, or
    matrices).
    """

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
    lines = []
    for cell, layers in sorted(found.items()):
        means = {layer: _mean(values) for layer, values in sorted(layers.items())}
        lines.append(
            Line(
                cell=cell,
                label=labels[cell],
                seeds=len(seeds[cell]),
                layers=means,
            )
        )
    return lines


def _label(results: StudyResults, levels: Mapping[str, Any]) -> str:
    told = [
        f"{name.rpartition('.')[2]} {level_text(levels[name])}"
        for name in results.factors
        if levels.get(name) is not None
    ]
    return ", ".join(told)


def _mean(values: Sequence[Any]) -> Any:
    """Mean of numbers, or of lists entry by entry."""
    if isinstance(values[0], list):
        return [_mean(entries) for entries in zip(*values, strict=True)]
    return statistics.fmean(values)


def layers_grid(diagnostic: str, about: str, found: Sequence[Line]) -> Grid:
    """Layers as columns, one row a cell; the first, middle and last layers where there
    are many.
    """
    shown = _shown_layers(found)
    columns = ["row", "cell", "seeds", *(f"layer {layer}" for layer in shown)]
    rows = []
    data = []
    for line in found:
        texts = [_text(line.layers.get(layer)) for layer in shown]
        rows.append([str(line.cell), line.label, str(line.seeds), *texts])
        for layer, value in line.layers.items():
            data.append(
                {
                    "row": line.cell,
                    "cell": line.label,
                    "seeds": line.seeds,
                    "layer": layer,
                    diagnostic: value,
                }
            )
    return Grid(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset(columns) - {"cell"},
        title=f"{diagnostic}: {about}",
        notes=["Means over seeds; layers count from 0."],
    )


def _shown_layers(found: Sequence[Line]) -> list[int]:
    """All layers, or `MOST_COLUMNS` of them evenly spread, the first and last included."""
    layers = sorted(set(itertools.chain.from_iterable(line.layers for line in found)))
    depth = max((len(line.layers) for line in found), default=0)
    if depth <= MOST_COLUMNS:
        return layers
    step = (len(layers) - 1) / (MOST_COLUMNS - 1)
    return sorted({layers[round(place * step)] for place in range(MOST_COLUMNS)})


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | int):
        return f"{value:.4g}"
    return f"{len(value)} numbers"
