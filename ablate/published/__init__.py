"""The tables of the five papers: rows as printed, with architectures.

The data are transcribed from the texts. Each paper is one YAML file of this package. A
table has

    about       what it compares
    varies      the factors whose levels distinguish its rows; backbone,
                data.image_size and data.image_width may be among them
    common      levels that all its rows share
    rows        metrics (such as top1), params (M) and flops (G) as printed, and the
                levels of the row beyond the common ones
    head        what turns the backbone into a network of the table's task; none for
                classification
    classes     number of classes, by default ImageNet's 1000

A table may have a `convention` for its params and one for its flops. These are words
that `ablate/audit/verify.py` defines, and they hold for the whole table. A printed
addition (`+0.04`) is relative to row 0 of the table. `base` names the row whose network
a row changes. `causes` of a table are named hypotheses about why a printed cost differs
from the counted one; a row refers to its own in `params_cause` and `flops_cause`. A
cause that cannot be tested only states `why`, and the row counts as unexplained. `note`
has other information for a reader. `sources.yaml` has numbers of other papers with
which causes compare.
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

# Classes of ImageNet.
IMAGENET = 1000
# The keys of a row that are not names of metrics.
ROW_KEYS = frozenset(
    ("row", "params", "flops", "params_cause", "flops_cause", "levels", "note", "base")
)
# The names of the costs in the YAML files, and on screen.
COSTS = {"params": "params", "flops": "FLOPs"}


@dataclass(frozen=True)
class Cause:
    """A hypothesis about why a printed cost differs from the counted one.

    Attributes:
        name: its name in the table.
        why: the hypothesis in words.
        counted: a convention for this row alone.
        levels: levels of the network that was counted instead.
        row: a printed row; the explained print is that row's print multiplied by
            `times`. The row is in `table`, by default in the same table.
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
        """Whether the hypothesis gives a number."""
        return bool(self.counted or self.levels or self.row or self.source)


@dataclass(frozen=True)
class Source:
    """Numbers that another publication prints, by backbone and cost.

    `place` is a table of a paper, or a file at a commit.
    """

    place: str
    numbers: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class PublishedRow:
    """One printed row.

    `levels` are all levels of its network and recipe, including those common to the
    table. `metrics` are the printed ones by name. `base` is the label of the row that
    it changes, if any. `causes` are by cost: params, FLOPs.
    """

    label: str
    levels: Settings
    metrics: Mapping[str, float]
    params: str
    flops: str
    note: str = ""
    base: str = ""
    causes: Mapping[str, Cause] = field(default_factory=dict)
    head: str = ""
    classes: int = IMAGENET

    @property
    def printed(self) -> Mapping[str, str]:
        """The printed costs by name, without those that are not printed."""
        costs = {"params": self.params, "FLOPs": self.flops}
        return {name: print_ for name, print_ in costs.items() if print_}

    @property
    def reason(self) -> str:
        """Why its prints differ from the counted numbers, in words."""
        costs: dict[str, list[str]] = {}
        for cost, cause in self.causes.items():
            costs.setdefault(cause.why, []).append(cost)
        return "; ".join(
            f"{' and '.join(names)}: {why}" for why, names in costs.items()
        )

    @property
    def backbone(self) -> str:
        return str(self.levels["backbone"])


@dataclass(frozen=True)
class PublishedTable:
    """One printed table.

    `skipped` are printed rows that are left out here, with the reason. `conventions`
    are by cost: params, FLOPs.
    """

    name: str
    about: str
    varies: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    note: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    conventions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def row(self, label: str) -> PublishedRow:
        """Returns the row of that label. Raises UnknownName if there is none."""
        match = next((row for row in self.rows if row.label == label), None)
        if match is None:
            raise UnknownName(
                unknown(f"row of {self.name}", label, [row.label for row in self.rows])
            )
        return match


@cache
def tables() -> Mapping[str, PublishedTable]:
    """Returns every table by name, such as `augvit/table3`, paper by paper."""
    from ablate.text.document import parse

    by_name: dict[str, PublishedTable] = {}
    for paper in PAPERS:
        text = (
            resources.files(__name__)
            .joinpath(f"{paper}.yaml")
            .read_text(encoding="utf-8")
        )
        for key, table in parse(text, f"{paper}.yaml").values["tables"].items():
            by_name[f"{paper}/{key}"] = _table(f"{paper}/{key}", table)
    return by_name


@cache
def sources() -> Mapping[str, Source]:
    """Returns the numbers of other publications, by key."""
    from ablate.text.document import parse

    text = (
        resources.files(__name__).joinpath("sources.yaml").read_text(encoding="utf-8")
    )
    values = parse(text, "sources.yaml").values["sources"]
    return {
        key: Source(source["place"], source["numbers"])
        for key, source in values.items()
    }


def _table(name: str, table: dict[str, Any]) -> PublishedTable:
    causes = {key: _cause(key, cause) for key, cause in table.get("causes", {}).items()}
    conventions = table.get("convention", {})
    return PublishedTable(
        name=name,
        about=table["about"],
        varies=tuple(table["varies"]),
        rows=tuple(_row(row, table, causes) for row in table["rows"]),
        note=table.get("note", ""),
        skipped=table.get("skipped", {}),
        conventions={COSTS[key]: tuple(words) for key, words in conventions.items()},
    )


def _cause(name: str, cause: dict[str, Any]) -> Cause:
    fields = {**cause, "counted": tuple(cause.get("counted", ()))}
    return Cause(name=name, **fields)


def _row(
    row: dict[str, Any], table: Mapping[str, Any], causes: Mapping[str, Cause]
) -> PublishedRow:
    metrics = {
        name: float(value)
        for name, value in row.items()
        if name not in ROW_KEYS and value is not None
    }
    named = {COSTS[key]: row[f"{key}_cause"] for key in COSTS if f"{key}_cause" in row}
    return PublishedRow(
        label=row["row"],
        levels={**table.get("common", {}), **row.get("levels", {})},
        metrics=metrics,
        params=str(row.get("params") or ""),
        flops=str(row.get("flops") or ""),
        note=row.get("note", ""),
        base=row.get("base", ""),
        causes={cost: causes[cause] for cost, cause in named.items()},
        head=table.get("head", ""),
        classes=table.get("classes", IMAGENET),
    )


def matching_row(
    table: PublishedTable,
    levels: Mapping[str, Level | None],
    fixed: Settings,
    head: str = "",
) -> PublishedRow | None:
    """Returns the row of a table whose varying levels are those of a cell.

    A factor that neither mentions is at its default.

    Args:
        levels: of the cell; None if the model does not read the factor.
        fixed: levels that all cells of the study share.
        head: that of the study's networks.
    """
    from ablate import factors, families

    cell_settings = {
        **fixed,
        **{name: level for name, level in levels.items() if level is not None},
    }

    def level_of(settings: Mapping[str, Level], name: str) -> Level | None:
        if name in settings:
            return settings[name]
        backbone = str(settings.get("backbone", ""))
        if backbone and name == "data.image_size":
            return families.find(backbone).image_size(backbone)
        if backbone and name.startswith("size."):
            number: Level = getattr(
                families.find(backbone).dimensions(backbone), name.removeprefix("size.")
            )
            return number
        if name in factors.parameters():
            return factors.parameters()[name][1].default
        return None

    # A level that the network does not read cannot tell two rows apart.
    def same(row: PublishedRow) -> bool:
        if row.head != head:
            return False
        reads = {name: level_of(row.levels, name) for name in table.varies}
        cell_levels = {name: level_of(cell_settings, name) for name in table.varies}
        return all(
            reads[name] == cell_levels[name] or _unread(name, row.levels, cell_settings)
            for name in table.varies
        )

    return next((row for row in table.rows if same(row)), None)


def _unread(name: str, row: Settings, cell: Settings) -> bool:
    """Whether neither network reads the factor, so that its level has no meaning."""
    from ablate import factors

    if name not in factors.parameters():
        return False
    return bool(factors.unread_reason(name, row)) and bool(
        factors.unread_reason(name, cell)
    )
