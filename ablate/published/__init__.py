"""The classification tables of the five papers: rows as printed, with the architecture of each. Data, transcribed from the texts.

Each paper is one YAML file of this package. A table has

    about       what it compares
    varies      the factors whose levels tell its rows apart; they may include backbone and data.image_size
    common      levels that all its rows share
    rows        top1, params (M) and flops (G) as printed, and the levels in which the row differs from the first

A row or table may say a `convention`, by which of our totals its FLOPs are counted: paper (the default), executed, or modules.
A printed addition (`+0.04`) is to the table's first row. `reason` says why a computed cost differs from a printed one,
`note` what else a reader must know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from ablate.records import Level, Settings

PAPERS = ("augvit", "antioversmoothing", "patchdiv", "mabvit", "iffn")


@dataclass(frozen=True)
class Row:
    """One printed row. `levels` are all levels of its network and recipe, those common to the table among them. `convention` says
    which of our totals its FLOPs are compared with: paper, executed, or modules."""

    label: str
    levels: Settings
    top1: float | None
    params: str
    flops: str
    convention: str
    reason: str
    note: str

    @property
    def backbone(self) -> str:
        return str(self.levels["backbone"])


@dataclass(frozen=True)
class Table:
    """One printed table. `skipped` are printed rows that are not here, with the reason."""

    name: str
    about: str
    varies: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)


@cache
def tables() -> Mapping[str, Table]:
    """Every table by name, as in `augvit/table3`, paper by paper."""
    from ablate.document import parse

    found: dict[str, Table] = {}
    for paper in PAPERS:
        text = resources.files(__name__).joinpath(f"{paper}.yaml").read_text(encoding="utf-8")
        for key, table in parse(text, f"{paper}.yaml").values["tables"].items():
            found[f"{paper}/{key}"] = _table(f"{paper}/{key}", table)
    return found


def _table(name: str, table: dict[str, Any]) -> Table:
    common = table.get("common", {})
    rows = tuple(
        Row(
            label=row["row"],
            levels={**common, **row.get("levels", {})},
            top1=float(row["top1"]) if row.get("top1") is not None else None,
            params=str(row.get("params") or ""),
            flops=str(row.get("flops") or ""),
            convention=row.get("convention", table.get("convention", "paper")),
            reason=row.get("reason", ""),
            note=row.get("note", ""),
        )
        for row in table["rows"]
    )
    return Table(
        name,
        table["about"],
        tuple(table["varies"]),
        rows,
        table.get("note", ""),
        table.get("skipped", {}),
    )


def matching_row(table: Table, levels: Mapping[str, Level | None], fixed: Settings) -> Row | None:
    """The row of a table whose varying levels are those of a cell. A factor that neither names has its default.

    Args:
        levels: of the cell; None where the model does not read the factor.
        fixed: levels that all cells of the study share.
    """
    from ablate import factors, families

    said = {**fixed, **{name: level for name, level in levels.items() if level is not None}}

    def told(settings: Mapping[str, Level], name: str) -> Level | None:
        if name in settings:
            return settings[name]
        backbone = str(settings.get("backbone", ""))
        if backbone and name == "data.image_size":
            return families.find(backbone).image_size(backbone)
        if backbone and name.startswith("size."):
            own: Level = getattr(families.find(backbone).dimensions(backbone), name.removeprefix("size."))
            return own
        return factors.parameters()[name][1].default if name in factors.parameters() else None

    def same(row: Row) -> bool:
        reads = {name: told(row.levels, name) for name in table.varies}
        mine = {name: told(said, name) for name in table.varies}
        return all(reads[name] == mine[name] or _unread(name, row.levels, said) for name in table.varies)

    return next((row for row in table.rows if same(row)), None)


def _unread(name: str, row: Settings, cell: Settings) -> bool:
    """Whether neither network reads the factor, so that its level means nothing."""
    from ablate import factors

    if name not in factors.parameters():
        return False
    return bool(factors.unread_reason(name, row)) and bool(factors.unread_reason(name, cell))


__all__ = ["PAPERS", "Row", "Table", "matching_row", "tables"]
