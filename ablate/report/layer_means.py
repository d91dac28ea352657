"""Diagnostics by layer: means over seeds, one line per cell."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.records import StudyResults
from ablate.records.stored import LayerValue
from ablate.report.summary import level_label, shown_levels
from ablate.report.table import Table
from ablate.statistics.numbers import mean_of

# The largest number of layers that a table shows side by side.
MOST_COLUMNS = 12


@dataclass(frozen=True)
class Line:
    """A diagnostic of one cell: the mean over its seeds, by layer.

    A mean is a number, a vector or a matrix.
    """

    cell: int
    label: str
    seeds: int
    layers: Mapping[int, Any]


def lines(results: StudyResults, values: Sequence[LayerValue]) -> list[Line]:
    """Returns one line per cell that has the diagnostic, in the order of the table."""
    labels = {cell.index: _label(results, shown_levels(cell)) for cell in results.cells}
    values_by_cell: dict[int, dict[int, list[Any]]] = {}
    seeds: dict[int, set[int]] = {}
    for stored in values:
        by_layer = values_by_cell.setdefault(stored.row, {})
        by_layer.setdefault(stored.layer, []).append(stored.value)
        seeds.setdefault(stored.row, set()).add(stored.seed)
    lines = []
    for cell, layers in sorted(values_by_cell.items()):
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
    notes = [
        f"{results.labels.get(name, name.rpartition('.')[2])}"
        f" {level_label(results.labels, name, levels[name])}"
        for name in results.factors
        if levels.get(name) is not None
    ]
    return ", ".join(notes)


def _mean(values: Sequence[Any]) -> Any:
    """Returns the mean of numbers, or of lists entry by entry."""
    if isinstance(values[0], list):
        return [_mean(entries) for entries in zip(*values, strict=True)]
    return mean_of(values)


def layers_table(diagnostic: str, about: str, lines: Sequence[Line]) -> Table:
    """Returns a table with layers as columns and one row per cell.

    If there are many layers, it shows some of them, evenly spread.
    """
    shown = _shown_layers(lines)
    columns = ["row", "cell", "seeds", *(f"layer {layer}" for layer in shown)]
    rows = []
    data = []
    for line in lines:
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
    return Table(
        columns=columns,
        rows=rows,
        data=data,
        right=frozenset(columns) - {"cell"},
        title=f"{diagnostic}: {about}",
        notes=["Means over seeds; layers count from 0."],
    )


def _shown_layers(lines: Sequence[Line]) -> list[int]:
    """Returns all layers, or `MOST_COLUMNS` evenly spread ones with first and last."""
    layers = sorted(set(itertools.chain.from_iterable(line.layers for line in lines)))
    depth = max((len(line.layers) for line in lines), default=0)
    if depth <= MOST_COLUMNS:
        return layers
    step = (len(layers) - 1) / (MOST_COLUMNS - 1)
    return sorted({layers[round(number * step)] for number in range(MOST_COLUMNS)})


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | int):
        return f"{value:.4g}"
    return f"{len(value)} numbers"
