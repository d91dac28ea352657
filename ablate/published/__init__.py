"""The classification tables of the five papers: rows as printed, with the architecture
of each.

Data, transcribed from the texts.

Each paper is one YAML file of this package. A table has

    about       what it compares
    varies      the factors whose levels tell its rows apart; they may include backbone and data.image_size
    common      levels that all its rows share
    rows        top1, params (M) and flops (G) as printed, and the levels in which the row differs from the first

A table may say a `convention` for its params and one for its flops: words that
`ablate/cost/verify.py` knows, which hold for the whole table. A printed addition
(`+0.04`) is to the table's first row. `base` names the row whose network a row changes.
`causes` of a table are hypotheses, by name, of why a printed cost is another one than
the counted; a row names its own in `params_cause` and `flops_cause`. A cause without a
test is not one: it says `why`, and the row counts as unexplained. `note` says what else
a reader must know. `sources.yaml` has the numbers of other papers that causes compare
with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ablate.errors import UnknownName, unknown
from ablate.records import Level, Settings

PAPERS = ("augvit", "antioversmoothing", "patchdiv", "mabvit", "iffn")

# The costs as the YAML files name them, and as they are shown.
COSTS = {"params": "params", "flops": "FLOPs"}


@dataclass(frozen=True)
class Cause:
    """A hypothesis of why a printed cost is another one than the counted.

    Attributes:
        name: as its table names it.
        why: the hypothesis in words.
        counted: a convention for this row alone.
        levels: levels of the network that is counted instead.
        row: a printed row, whose print the row has, or `times` of it; in `table`, by
            default the row's own.
        source: the key of a source in which the row's backbone has that print.
    """

    name: str
    why: str
    counted: tuple[str, ...] = ()
    levels: Settings = field(default_factory=dict)
    row: str = ""
    table: str = ""
    times: str = "1"
    source: str = ""

    @property
    def testable(self) -> bool:
        """Whether the hypothesis says a number."""
        return bool(self.counted or self.levels or self.row or self.source)


@dataclass(frozen=True)
class Source:
    """Numbers that another publication prints, by backbone and cost.

    `place` is where: a paper's table, or a file at a commit.
    """

    place: str
    numbers: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Row:
    """One printed row.

    `levels` are all levels of its network and recipe, those common to the table among
    them. `base` is the label of the row that it changes, where it has one. `causes` are
    by cost: params, FLOPs.
    """

    label: str
    levels: Settings
    top1: float | None
    params: str
    flops: str
    note: str = ""
    base: str = ""
    causes: Mapping[str, Cause] = field(default_factory=dict)

    @property
    def printed(self) -> Mapping[str, str]:
        """The printed costs by name; those that are not printed are not there."""
        costs = {"params": self.params, "FLOPs": self.flops}
        return {name: print_ for name, print_ in costs.items() if print_}

    @property
    def reason(self) -> str:
        """Why its prints are other numbers than the counted, in words."""
        return "; ".join(dict.fromkeys(cause.why for cause in self.causes.values()))

    @property
    def backbone(self) -> str:
        return str(self.levels["backbone"])


@dataclass(frozen=True)
class Table:
    """One printed table.

    `skipped` are printed rows that are not here, with the reason. `conventions` are by
    cost: params, FLOPs.
    """

    name: str
    about: str
    varies: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    conventions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def row(self, label: str) -> Row:
        """The row of that label. Raises UnknownName if there is none."""
        found = next((row for row in self.rows if row.label == label), None)
        if found is None:
            raise UnknownName(
                unknown(f"row of {self.name}", label, [row.label for row in self.rows])
            )
        return found


@cache
def tables() -> Mapping[str, Table]:
    """Every table by name, as in `augvit/table3`, paper by paper."""
    from ablate.document import parse

    found: dict[str, Table] = {}
    for paper in PAPERS:
        text = (
            resources.files(__name__)
            .joinpath(f"{paper}.yaml")
            .read_text(encoding="utf-8")
        )
        for key, table in parse(text, f"{paper}.yaml").values["tables"].items():
            found[f"{paper}/{key}"] = _table(f"{paper}/{key}", table)
    return found


@cache
def sources() -> Mapping[str, Source]:
    """What other publications print, by key."""
    from ablate.document import parse

    text = (
        resources.files(__name__).joinpath("sources.yaml").read_text(encoding="utf-8")
    )
    found = parse(text, "sources.yaml").values["sources"]
    return {
        key: Source(source["place"], source["numbers"]) for key, source in found.items()
    }


def _table(name: str, table: dict[str, Any]) -> Table:
    causes = {key: _cause(key, cause) for key, cause in table.get("causes", {}).items()}
    conventions = table.get("convention", {})
    return Table(
        name=name,
        about=table["about"],
        varies=tuple(table["varies"]),
        rows=tuple(_row(row, table.get("common", {}), causes) for row in table["rows"]),
        note=table.get("note", ""),
        skipped=table.get("skipped", {}),
        conventions={COSTS[key]: tuple(words) for key, words in conventions.items()},
    )


def _cause(name: str, cause: dict[str, Any]) -> Cause:
    known = {**cause, "counted": tuple(cause.get("counted", ()))}
    return Cause(name=name, **known)


def _row(row: dict[str, Any], common: Settings, causes: Mapping[str, Cause]) -> Row:
    named = {COSTS[key]: row[f"{key}_cause"] for key in COSTS if f"{key}_cause" in row}
    return Row(
        label=row["row"],
        levels={**common, **row.get("levels", {})},
        top1=float(row["top1"]) if row.get("top1") is not None else None,
        params=str(row.get("params") or ""),
        flops=str(row.get("flops") or ""),
        note=row.get("note", ""),
        base=row.get("base", ""),
        causes={cost: causes[cause] for cost, cause in named.items()},
    )


def matching_row(
    table: Table, levels: Mapping[str, Level | None], fixed: Settings
) -> Row | None:
    """The row of a table whose varying levels are those of a cell.

    A factor that neither names has its default.

    Args:
        levels: of the cell; None where the model does not read the factor.
        fixed: levels that all cells of the study share.
    """
    from ablate import factors, families

    said = {
        **fixed,
        **{name: level for name, level in levels.items() if level is not None},
    }

    def told(settings: Mapping[str, Level], name: str) -> Level | None:
        if name in settings:
            return settings[name]
        backbone = str(settings.get("backbone", ""))
        if backbone and name == "data.image_size":
            return families.find(backbone).image_size(backbone)
        if backbone and name.startswith("size."):
            own: Level = getattr(
                families.find(backbone).dimensions(backbone), name.removeprefix("size.")
            )
            return own
        if name in factors.parameters():
            return factors.parameters()[name][1].default
        return None

    def same(row: Row) -> bool:
        reads = {name: told(row.levels, name) for name in table.varies}
        mine = {name: told(said, name) for name in table.varies}
        return all(
            reads[name] == mine[name] or _unread(name, row.levels, said)
            for name in table.varies
        )

    return next((row for row in table.rows if same(row)), None)


def _unread(name: str, row: Settings, cell: Settings) -> bool:
    """Whether neither network reads the factor, so that its level means nothing."""
    from ablate import factors

    if name not in factors.parameters():
        return False
    return bool(factors.unread_reason(name, row)) and bool(
        factors.unread_reason(name, cell)
    )


__all__ = [
    "PAPERS",
    "Cause",
    "Row",
    "Source",
    "Table",
    "matching_row",
    "sources",
    "tables",
]
