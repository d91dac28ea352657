"""Checks how what is stored of a study fits together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ablate.errors import DamagedStore, shortened
from ablate.store.space_data import metrics_of

# The number of a row, that of the row it repeats, and that of the row it controls.
Numbers = tuple[int, int | None, int | None]


def check_rows(study: str, rows: Sequence[Numbers]) -> None:
    """Checks the rows of a study, which are in their order.

    Raises:
        DamagedStore: row 0 is missing, or a row refers to none.
    """
    shown = shortened(study)
    if not rows or rows[0][0] != 0:
        raise DamagedStore(f"the study '{shown}' has no row 0")
    numbers = {row[0] for row in rows}
    for number, same_as, control_of in rows:
        # A row repeats an earlier one only.
        if same_as is not None and not (same_as in numbers and same_as < number):
            raise DamagedStore(
                f"row {number} of '{shown}' repeats row {same_as}, which is no earlier"
                " row"
            )
        if control_of is not None and control_of not in numbers:
            raise DamagedStore(
                f"row {number} of '{shown}' is the control of row {control_of}, which"
                " does not exist"
            )


def check_complete(study: str, what: str, rows: Iterable[Sequence[object]]) -> None:
    """Checks values that are never NULL.

    SQLite may have NULL in a column whose schema forbids it.

    Args:
        what: what the rows are, for the message.

    Raises:
        DamagedStore: one of them is NULL.
    """
    if any(None in row for row in rows):
        raise DamagedStore(f"a value of {what} of '{shortened(study)}' is NULL")


def check_metric(study: str, metric: str, space: Mapping[str, Any]) -> None:
    """Checks that a study compares its rows by a metric that its space has.

    Raises:
        DamagedStore: it does not.
    """
    if metric not in {stored_metric.name for stored_metric in metrics_of(space)}:
        raise DamagedStore(
            f"the study '{shortened(study)}' compares its rows by '{metric}', which its"
            " space does not have"
        )
