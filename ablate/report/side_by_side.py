"""Two studies beside each other, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.errors import AblateError
from ablate.records import CellResult, Level, StudyResults, level_text
from ablate.report.numbers import fixed
from ablate.report.table import Column, Table, tabulate
from ablate.statistics.numbers import mean_of, sd_of


@dataclass(frozen=True)
class Pair:
    """The rows with the same levels in two studies; None where a study has none."""

    levels: Mapping[str, Level]
    first: CellResult | None
    second: CellResult | None

    @property
    def difference(self) -> float | None:
        """The mean of the second row minus that of the first one."""
        means = [_mean(cell) for cell in (self.first, self.second)]
        if means[0] is None or means[1] is None:
            return None
        return means[1] - means[0]


def pairs(
    first: StudyResults,
    second: StudyResults,
    fixed_levels: tuple[Mapping[str, Level], Mapping[str, Level]] = ({}, {}),
) -> list[Pair]:
    """Returns the rows of two studies, those with the same levels together.

    Args:
        fixed_levels: the levels that do not vary in each study. A factor that varies in
            one study and is fixed in the other one counts.

    Raises:
        AblateError: the studies compare by other metrics.
    """
    if first.metric.name != second.metric.name:
        raise AblateError(
            f"{first.name} compares rows by {first.metric.name}, and {second.name} by"
            f" {second.metric.name}; compare studies with the same metric"
        )
    names = tuple(dict.fromkeys((*first.factors, *second.factors)))
    by_levels: dict[tuple[str, ...], list[CellResult | None]] = {}
    shown: dict[tuple[str, ...], dict[str, Level]] = {}
    for place, (study, constant) in enumerate(
        zip((first, second), fixed_levels, strict=True)
    ):
        for cell in study.cells:
            if cell.same_as is not None or cell.role == "control":
                continue
            levels = {**constant, **cell.levels}
            levels = {name: levels[name] for name in names if name in levels}
            key = tuple(
                level_text(levels[name]) if name in levels else "" for name in names
            )
            shown[key] = levels
            by_levels.setdefault(key, [None, None])[place] = cell
    return [
        Pair(levels=shown[key], first=cells[0], second=cells[1])
        for key, cells in by_levels.items()
    ]


def side_by_side(
    first: StudyResults,
    second: StudyResults,
    fixed_levels: tuple[Mapping[str, Level], Mapping[str, Level]] = ({}, {}),
) -> Table:
    """Returns the rows of two studies as a table.

    Raises:
        AblateError: the studies compare by other metrics.
    """
    rows = pairs(first, second, fixed_levels)
    digits = first.metric.digits
    names = dict.fromkeys((*first.factors, *second.factors))

    def difference(pair: Pair) -> str:
        if pair.difference is None:
            return ""
        return fixed(pair.difference, digits, signed=True)

    columns: list[Column[Pair]] = [
        *map(_level_column, names),
        *_study_columns("first", first, digits),
        *_study_columns("second", second, digits),
        Column(
            "difference",
            lambda pair: pair.difference,
            heading="difference",
            text=difference,
            right=True,
            kind=float | None,
        ),
    ]
    return tabulate(
        columns,
        rows,
        notes=[
            f"{first.metric.title}: mean ± standard deviation (seeds). The difference is"
            f" {second.name} minus {first.name}. It has no verdict: to test it, put both"
            " rows into one study."
        ],
    )


def _level_column(factor: str) -> Column[Pair]:
    return Column(factor, lambda pair: pair.levels.get(factor), heading=factor)


def _study_columns(place: str, study: StudyResults, digits: int) -> list[Column[Pair]]:
    def cell_of(pair: Pair) -> CellResult | None:
        return pair.first if place == "first" else pair.second

    def text(pair: Pair) -> str:
        cell = cell_of(pair)
        mean = _mean(cell)
        if cell is None or mean is None:
            return "" if cell is None else "no result"
        values = list(cell.values.values())
        spread = f" ± {fixed(sd_of(values), digits)}" if len(values) > 1 else ""
        return f"{fixed(mean, digits)}{spread} ({len(values)})"

    return [
        Column(
            f"{place}_mean",
            lambda pair: _mean(cell_of(pair)),
            heading=study.name,
            text=text,
            right=True,
            kind=float | None,
        ),
        Column(f"{place}_n", lambda pair: _number(cell_of(pair)), kind=int),
    ]


def _number(cell: CellResult | None) -> int:
    return len(cell.values) if cell is not None else 0


def _mean(cell: CellResult | None) -> float | None:
    if cell is None or not cell.values:
        return None
    return mean_of(cell.values.values())
