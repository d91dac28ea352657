"""The numbers of seeds under which runs are kept: the same ones in each generation.

A seed that is a whole number keeps it. Other seeds get numbers in the order in which
they are seen first, and keep them. Runs without seeds are told apart by their results,
so that the order of the lines says nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ablate.records import (
    CellResult,
    Level,
    Status,
    StudyResults,
    is_number,
    level_text,
)

Key: TypeAlias = tuple[tuple[str, str], ...]
Result: TypeAlias = tuple[Status, float | None]


def levels_key(levels: Mapping[str, Level]) -> Key:
    """Returns levels by which rows of two files are compared: 1, 1.0 and "1" are one."""
    return tuple(sorted((name, _plain(level)) for name, level in levels.items()))


def _plain(level: Level) -> str:
    number: float | str = level if is_number(level) else level_text(level)
    try:
        return f"{float(number):.15g}"
    except ValueError:
        return str(number)


def numbered(
    results: StudyResults,
    labels: Sequence[str],
    before: StudyResults | None,
    labels_before: Sequence[str],
    *,
    has_seeds: bool,
) -> tuple[StudyResults, tuple[str, ...]]:
    """Returns results with the numbers of seeds that they had before, and the labels.

    Args:
        labels: the seed of each number; none if seeds are whole numbers.
        before: the generation before; None: there is none.
        labels_before: its labels.
        has_seeds: whether the file has seeds.
    """
    if not has_seeds:
        known = (
            {levels_key(cell.levels): cell for cell in before.cells} if before else {}
        )
        cells = tuple(
            _by_result(cell, known.get(levels_key(cell.levels)))
            for cell in results.cells
        )
        return replace(results, cells=cells), ()
    if not labels:
        return results, ()
    every = tuple(dict.fromkeys([*labels_before, *labels]))
    places = {label: place for place, label in enumerate(every)}
    numbers = {number: places[label] for number, label in enumerate(labels)}
    cells = tuple(_renumbered(cell, numbers) for cell in results.cells)
    return replace(results, cells=cells), every


def _renumbered(cell: CellResult, numbers: Mapping[int, int]) -> CellResult:
    return replace(
        cell,
        statuses={numbers[seed]: each for seed, each in cell.statuses.items()},
        values={numbers[seed]: each for seed, each in cell.values.items()},
    )


def _by_result(cell: CellResult, before: CellResult | None) -> CellResult:
    """Returns a cell whose runs have the numbers of equal results before.

    Other runs get the numbers behind them.
    """
    earlier = _results(before) if before is not None else {}
    free: dict[Result, list[int]] = {}
    for seed, result in earlier.items():
        free.setdefault(result, []).append(seed)
    numbers: dict[int, int] = {}
    following = itertools.count(max(earlier, default=-1) + 1)
    for seed, result in _results(cell).items():
        equal = free.get(result)
        numbers[seed] = equal.pop(0) if equal else next(following)
    return _renumbered(cell, numbers)


def _results(cell: CellResult) -> dict[int, Result]:
    return {
        seed: (status, cell.values.get(seed)) for seed, status in cell.statuses.items()
    }
