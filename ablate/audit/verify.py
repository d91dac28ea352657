"""Compares the papers' printed parameters and FLOPs with this package's counts.

A count equals a print if it rounds to the print in its last digit, half away from zero.
This is the only rule. A printed cost is in one of three classes:

    equal       the package's own count is equal: every parameter, and every operator
                that runs, by fvcore's rules
    convention  the count is equal under the convention that the paper's table states
                for all its rows
    different   neither is equal; a cause says why, and holds if the number that
                follows from it is equal

A convention is a list of words: a way of counting of `ablate.audit.conventions`, and forms
of print:

    truncated      the print drops digits instead of rounding
    printed sum    a row that changes another row's network prints that row's print
                   plus the counted addition
    doubled depth  a row with twice the layers of another row prints twice its print
    half of both   a row with one of two branches prints half of what the row with both
                   prints
    quoted augreg  a row with an unmodified backbone has the print of that publication
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from enum import StrEnum

from ablate import families
from ablate.audit.conventions import COUNTS, DEFAULTS, OF_COST, CostName, find
from ablate.cost.count import count
from ablate.errors import UnknownName, unknown
from ablate.families import resolve
from ablate.published import Cause, PublishedRow, PublishedTable, sources, tables
from ablate.records import Architecture, Cost, Settings

# The unit of each printed cost, and its size.
UNITS: Mapping[CostName, tuple[str, int]] = {
    "params": ("M", 10**6),
    "FLOPs": ("G", 10**9),
}

TRUNCATED = "truncated"
PRINTED_SUM = "printed sum"
DOUBLED = "doubled depth"
HALVED = "half of both"
DEPTH = "size.depth"
PLACEMENT = "shortcuts.placement"
# The forms of print that quote a publication, with its key in `sources`.
QUOTES: Mapping[str, str] = {"quoted augreg": "augreg"}
# The forms of print that a convention may name.
FORMS: Mapping[str, str] = {
    TRUNCATED: "the print drops digits instead of rounding",
    PRINTED_SUM: (
        "a modified row prints the printed number of its baseline plus the counted"
        " addition"
    ),
    DOUBLED: "the number for twice the layers is twice the printed number",
    HALVED: "the number for one branch is half of the number for both branches",
    **{
        word: f"an unmodified backbone has the number that the source {source} prints"
        for word, source in QUOTES.items()
    },
}


class Class(StrEnum):
    """The class of a printed cost compared with the counted one."""

    EQUAL = "equal"
    CONVENTION = "convention"
    DIFFERENT = "different"


@dataclass(frozen=True)
class Checked:
    """One printed cost beside the computed ones, in M or G.

    Attributes:
        table, row: where it is printed.
        cost: params or FLOPs.
        printed: as printed.
        default: by the package's own count.
        computed: by the table's convention; the default if the table has none.
        kind: its class.
        follows: whether the table's convention gives the print.
        cause: why it is different; None if no cause is given.
        consequence: the print according to the cause; None if the cause gives no
            number.
        holds: whether the cause gives the print.
    """

    table: PublishedTable
    row: PublishedRow
    cost: CostName
    printed: str
    default: float
    computed: float
    kind: Class
    follows: bool
    cause: Cause | None = None
    consequence: float | None = None
    holds: bool = False

    @property
    def convention(self) -> tuple[str, ...]:
        """The words of the table's convention for this cost; empty if it has none."""
        return self.table.conventions.get(self.cost, ())

    @property
    def explained(self) -> bool:
        """Whether it is not different, or its cause holds."""
        return self.kind is not Class.DIFFERENT or self.holds

    @property
    def stated(self) -> bool:
        """Whether its table states that no cause was found."""
        return self.cause is not None and not self.cause.testable


@dataclass
class Book:
    """Counted numbers, each counted only once.

    Attributes:
        costs: returns the cost of an architecture from one trace.
    """

    costs: Callable[[Architecture], Cost] = count
    _traced: dict[str, Cost] = field(default_factory=dict)
    _numbers: dict[tuple[str, str], float] = field(default_factory=dict)

    def number(self, architecture: Architecture, way: str) -> float:
        """Returns an architecture's parameters or FLOPs by a way of counting."""
        if way in OF_COST:
            return OF_COST[way](self._cost(architecture))
        key = (architecture.hash, way)
        if key not in self._numbers:
            self._numbers[key] = find(way).number(architecture)
        return self._numbers[key]

    def _cost(self, architecture: Architecture) -> Cost:
        if architecture.hash not in self._traced:
            self._traced[architecture.hash] = self.costs(architecture)
        return self._traced[architecture.hash]


def architecture_of(row: PublishedRow) -> Architecture:
    """Returns the network of a printed row, for the classes of its data set."""
    outside = ("backbone", "data.image_size", "data.image_width")
    settings = {
        name: level
        for name, level in row.levels.items()
        if name not in outside and not name.startswith("recipe.")
    }
    side = row.levels.get(
        "data.image_size", families.find(row.backbone).image_size(row.backbone)
    )
    return resolve(
        row.backbone,
        int(side),
        3,
        row.classes,
        settings,
        head=row.head,
        image_width=int(row.levels.get("data.image_width", 0)),
    )


def rounds_to(value: Decimal, printed: str, *, truncated: bool = False) -> bool:
    """Whether a value rounds to a print in its last digit, half away from zero.

    With `truncated`, whether it truncates to the print.
    """
    number = Decimal(printed)
    return value.quantize(number, ROUND_DOWN if truncated else ROUND_HALF_UP) == number


def verify(table: PublishedTable, book: Book | None = None) -> Iterator[Checked]:
    """Yields every printed cost of a table with its class.

    Raises:
        UnknownName: a convention or a cause refers to an unknown way of counting, row,
            table or source.
    """
    book = book or Book()
    for row in table.rows:
        for cost in UNITS:
            if cost in row.printed:
                yield check(table, row, cost, book)


def check(
    table: PublishedTable, row: PublishedRow, cost: CostName, book: Book
) -> Checked:
    """Returns one printed cost with its class. Raises as `verify` does."""
    printed = row.printed[cost]
    words = table.conventions.get(cost, ())
    default = _predicted(table, row, cost, (), book)
    computed = _predicted(table, row, cost, words, book)
    equal = rounds_to(default, printed)
    follows = rounds_to(computed, printed, truncated=TRUNCATED in words)
    checked = Checked(
        table=table,
        row=row,
        cost=cost,
        printed=printed,
        default=float(default),
        computed=float(computed),
        kind=_class(equal, follows and bool(words)),
        follows=follows,
        cause=row.causes.get(cost),
    )
    if checked.kind is not Class.DIFFERENT:
        return checked
    followed = follow(table, row, cost, book)
    if followed:
        return replace(checked, consequence=float(followed[0]), holds=followed[1])
    return checked


def _class(equal: bool, follows: bool) -> Class:
    if equal:
        return Class.EQUAL
    if follows:
        return Class.CONVENTION
    return Class.DIFFERENT


def way_of(cost: CostName, words: Sequence[str]) -> str:
    """Returns the way of counting in a convention's words.

    If there is none, it is the package's own.

    Raises:
        UnknownName: a word is neither a way of counting that cost nor a form of print.
    """
    ways = [word for word in words if word not in FORMS]
    allowed = [name for name, way in COUNTS.items() if way.cost == cost]
    for word in ways:
        if word not in allowed:
            raise UnknownName(
                unknown(f"convention for {cost}", word, [*allowed, *FORMS])
            )
    if ways:
        return ways[0]
    return DEFAULTS[cost]


def _predicted(
    table: PublishedTable,
    row: PublishedRow,
    cost: CostName,
    words: Sequence[str],
    book: Book,
) -> Decimal:
    """Returns what a row prints under a convention, before rounding, in M or G."""
    way = way_of(cost, words)
    other_print = _from_prints(table, row, cost, words)
    if other_print is not None:
        return other_print
    value = _counted(row, cost, way, book)
    # A printed addition is relative to row 0 of the table.
    if row.printed[cost].startswith("+"):
        return value - _counted(table.rows[0], cost, way, book)
    if PRINTED_SUM in words and row.base:
        base = table.row(row.base)
        return Decimal(base.printed[cost]) + value - _counted(base, cost, way, book)
    return value


def _from_prints(
    table: PublishedTable, row: PublishedRow, cost: CostName, words: Sequence[str]
) -> Decimal | None:
    """Returns what a row prints according to other prints.

    The forms of print in a convention decide; None if none of them applies.
    """
    if DOUBLED in words:
        half = _half_as_deep(table, row)
        if half is not None:
            return 2 * Decimal(half.printed[cost])
    if HALVED in words and row.levels.get(PLACEMENT) in ("msa", "mlp"):
        both = _row_with(table, {**row.levels, PLACEMENT: "both"})
        if both is not None:
            return Decimal(both.printed[cost]) / 2
    for word, source in QUOTES.items():
        numbers = sources()[source].numbers
        if word in words and row.backbone in numbers and _changes_nothing(table, row):
            return Decimal(numbers[row.backbone][cost])
    return None


def _half_as_deep(table: PublishedTable, row: PublishedRow) -> PublishedRow | None:
    """Returns the same row with the backbone's own depth, for a row with twice that."""
    depth = families.find(row.backbone).dimensions(row.backbone).depth
    if row.levels.get(DEPTH) != 2 * depth:
        return None
    return _row_with(
        table, {name: level for name, level in row.levels.items() if name != DEPTH}
    )


def _row_with(table: PublishedTable, levels: Settings) -> PublishedRow | None:
    return next((row for row in table.rows if row.levels == levels), None)


def _changes_nothing(table: PublishedTable, row: PublishedRow) -> bool:
    """Whether every row of the table has the settings of this row."""
    shared = [architecture_of(other).settings for other in table.rows]
    row_settings = architecture_of(row).settings
    return all(
        settings.get(name) == level
        for settings in shared
        for name, level in row_settings.items()
    )


def _counted(row: PublishedRow, cost: CostName, way: str, book: Book) -> Decimal:
    return Decimal(book.number(architecture_of(row), way)) / UNITS[cost][1]


def follow(
    table: PublishedTable, row: PublishedRow, cost: CostName, book: Book
) -> tuple[Decimal, bool] | None:
    """Returns the print according to a row's cause, in M or G, and whether it holds.

    Returns None without a cause that gives a number. Raises as `verify` does.
    """
    cause = row.causes.get(cost)
    if cause is None or not cause.testable:
        return None
    if cause.source:
        return _copied(row, cost, cause)
    if cause.row:
        return _repeated(table, row, cost, cause, book)
    changed = replace(row, levels={**row.levels, **cause.levels})
    value = _predicted(table, changed, cost, cause.counted, book)
    return value, rounds_to(
        value, row.printed[cost], truncated=TRUNCATED in cause.counted
    )


def _copied(row: PublishedRow, cost: CostName, cause: Cause) -> tuple[Decimal, bool]:
    """Returns the print of another publication for the same backbone."""
    publications = sources()
    if cause.source not in publications:
        raise UnknownName(unknown("source", cause.source, tuple(publications)))
    numbers = publications[cause.source].numbers
    if row.backbone not in numbers:
        raise UnknownName(
            unknown(f"backbone in source {cause.source}", row.backbone, tuple(numbers))
        )
    copied = numbers[row.backbone][cost]
    return Decimal(copied), copied == row.printed[cost]


def _repeated(
    table: PublishedTable, row: PublishedRow, cost: CostName, cause: Cause, book: Book
) -> tuple[Decimal, bool]:
    """Returns the print of another row, or a multiple of it.

    That row must be explained itself.
    """
    other_table = tables()[cause.table] if cause.table else table
    other = check(other_table, other_table.row(cause.row), cost, book)
    value = Decimal(cause.times) * Decimal(other.printed)
    return value, value == Decimal(row.printed[cost]) and other.explained
