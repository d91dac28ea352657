"""The table of printed and computed costs, with notes on each class of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ablate.audit.conventions import COUNTS
from ablate.audit.verify import FORMS, UNITS, Book, Checked, Class, verify
from ablate.errors import UnknownName, unknown
from ablate.published import PAPERS, tables
from ablate.report.table import Column, Table, tabulate


def verified(names: Sequence[str], say: Callable[[str], None]) -> tuple[Table, int]:
    """A table of printed and computed costs, and the number of unexplained ones.

    A number counts as unexplained if it differs and its table neither gives a cause
    that holds nor states that none was found.

    Args:
        names: papers or tables; empty for all.
        say: is called with each comparison. Counting all tables takes half an hour.

    Raises:
        UnknownName: no such paper or table.
    """
    every = tables()
    for name in names:
        if name not in every and name not in PAPERS:
            raise UnknownName(unknown("paper or table", name, [*PAPERS, *every]))
    chosen = [
        table
        for name, table in every.items()
        if not names or name in names or name.partition("/")[0] in names
    ]
    book = Book()
    checks: list[Checked] = []
    for table in chosen:
        if any(row.printed for row in table.rows):
            say(f"{table.name} ...")
        for checked in verify(table, book):
            checks.append(checked)
            say(
                f"  {checked.row.label}, {checked.cost} ({UNITS[checked.cost][0]}):"
                f" printed {checked.printed}, computed {_computed(checked)}:"
                f" {checked.kind.value}"
            )
    verdicts = tabulate(
        _checked_columns(),
        checks,
        title="Printed against computed costs",
        notes=[
            *_class_notes(checks),
            *_convention_notes(checks),
            *_cause_notes(checks),
        ],
    )
    return verdicts, sum(
        not checked.explained and not checked.stated for checked in checks
    )


def _checked_columns() -> list[Column[Checked]]:
    return [
        Column("table", lambda each: each.table.name, heading="table"),
        Column("row", lambda each: each.row.label, heading="row"),
        Column(
            "cost",
            lambda each: each.cost,
            heading="cost",
            text=lambda each: f"{each.cost} ({UNITS[each.cost][0]})",
        ),
        Column("unit", lambda each: UNITS[each.cost][0]),
        Column("printed", lambda each: each.printed, heading="printed", right=True),
        Column(
            "computed",
            lambda each: each.default,
            heading="computed",
            text=_computed,
            right=True,
        ),
        Column("class", lambda each: each.kind.value, heading="class"),
        Column("convention", lambda each: ", ".join(each.convention)),
        Column(heading="convention or cause", text=_ground),
        Column("by_convention", lambda each: each.computed),
        Column("equal_by_convention", lambda each: each.follows),
        Column("cause", lambda each: _cause(each, "name")),
        Column("why", lambda each: _cause(each, "why")),
        Column("by_cause", _by_cause),
        Column("explained", lambda each: each.explained),
    ]


def _computed(checked: Checked) -> str:
    sign = "+" if checked.printed.startswith("+") else ""
    is_equal = checked.kind is Class.EQUAL
    return f"{checked.default if is_equal else checked.computed:{sign}.4g}"


def _cause(checked: Checked, field: str) -> str:
    if checked.kind is not Class.DIFFERENT or checked.cause is None:
        return ""
    return str(getattr(checked.cause, field))


def _by_cause(checked: Checked) -> object:
    return checked.consequence if checked.kind is Class.DIFFERENT else None


def _ground(checked: Checked) -> str:
    """The convention or cause that gives the printed number, or `unexplained`."""
    if checked.kind is Class.EQUAL:
        return ""
    if checked.kind is Class.CONVENTION:
        return ", ".join(checked.convention)
    if checked.cause and checked.holds:
        return checked.cause.name
    return "unexplained"


def _class_notes(checks: list[Checked]) -> list[str]:
    """How many printed numbers are in each class."""
    meanings = {
        Class.EQUAL: "the default count rounds to the printed number in its last digit",
        Class.CONVENTION: (
            "the count does so under the convention that its table states for all its"
            " rows"
        ),
        Class.DIFFERENT: "neither count does",
    }
    notes = []
    for kind, meaning in meanings.items():
        some = [checked for checked in checks if checked.kind is kind]
        notes.append(f"{kind.value}: {len(some)} of {len(checks)}; {meaning}.")
    holding = sum(checked.holds for checked in checks)
    unexplained = sum(not checked.explained for checked in checks)
    return [
        *notes,
        (
            f"Of the different numbers, {holding} have a cause that gives the printed"
            f" number; {unexplained} are unexplained."
        ),
    ]


def _convention_notes(checks: list[Checked]) -> list[str]:
    """Each table's convention, and for how many rows it gives the printed number."""
    notes = []
    for table, cost in dict.fromkeys(
        (checked.table.name, checked.cost) for checked in checks if checked.convention
    ):
        some = [
            checked
            for checked in checks
            if (checked.table.name, checked.cost) == (table, cost)
        ]
        words = some[0].convention
        meanings = [
            (
                f"{COUNTS[word].about} ({COUNTS[word].source})"
                if word in COUNTS
                else FORMS[word]
            )
            for word in words
        ]
        count = f"{sum(checked.follows for checked in some)} of {len(some)} equal"
        notes.append(
            f"{table}, {cost}, convention {', '.join(words)}: {count};"
            f" {'; '.join(meanings)}."
        )
    return notes


def _cause_notes(checks: list[Checked]) -> list[str]:
    """Why printed numbers are different, and in which rows."""
    labels: dict[tuple[str, str, str], list[str]] = {}
    for checked in checks:
        if checked.kind is not Class.DIFFERENT:
            continue
        why = checked.cause.why if checked.cause else "no cause is stated"
        labels.setdefault((checked.table.name, _ground(checked), why), []).append(
            checked.row.label
        )
    return [
        f"{table}, {', '.join(rows)}: {ground}: {why}."
        for (table, ground, why), rows in labels.items()
    ]
