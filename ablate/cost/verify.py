"""The papers' printed parameters and FLOPs against what this package counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from ablate import families
from ablate.cost.count import count, module_flops, parameters
from ablate.families import resolve
from ablate.published import Row, Table
from ablate.records import Architecture, Cost

FLOPS_TOLERANCE = 0.015
"""Relative difference up to which a printed FLOP count agrees: papers count norms and activations differently."""


@dataclass(frozen=True)
class Checked:
    """One printed cost beside the computed one, in M or G. `agrees` within the last printed digit (params), or within 1.5 % or
    the last digit (FLOPs)."""

    table: str
    row: Row
    cost: str
    printed: str
    computed: float
    agrees: bool

    @property
    def explained(self) -> bool:
        """Whether it agrees, or the row says why not."""
        return self.agrees or bool(self.row.reason)


def architecture_of(row: Row) -> Architecture:
    """The network of a printed row, for ImageNet's 1000 classes."""
    outside = ("backbone", "data.image_size")
    settings = {name: level for name, level in row.levels.items() if name not in outside and not name.startswith("recipe.")}
    side = row.levels.get("data.image_size", families.find(row.backbone).image_size(row.backbone))
    return resolve(row.backbone, int(side), 3, 1000, settings)


def verify(table: Table, costs: Callable[[Architecture], Cost] = count) -> Iterator[Checked]:
    """Every printed cost of a table; an addition (`+0.04`) is to the table's first row."""
    first = table.rows[0]
    known: dict[str, Cost] = {}

    def once(architecture: Architecture) -> Cost:
        if architecture.hash not in known:
            known[architecture.hash] = costs(architecture)
        return known[architecture.hash]

    for row in table.rows:
        for name, printed, unit in (("params", row.params, 1e6), ("FLOPs", row.flops, 1e9)):
            if not printed:
                continue
            value = _cost(row, name, once)
            if printed.startswith("+"):
                value -= _cost(first, name, once)
            yield Checked(table.name, row, name, printed, value / unit, _agrees(printed, value / unit, name))


def _cost(row: Row, name: str, costs: Callable[[Architecture], Cost]) -> float:
    architecture = architecture_of(row)
    if name == "params" and not row.flops:
        # Half the tables print no FLOPs: no need to trace.
        return parameters(architecture)
    if name == "params":
        return costs(architecture).params
    if row.convention == "modules":
        return module_flops(architecture)
    found = costs(architecture)
    return found.flops_paper if row.convention == "paper" else found.flops


def _agrees(printed: str, computed: float, name: str) -> bool:
    number = Decimal(printed)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    digit = 10.0**exponent
    # Half a digit of rounding is what a print allows; one digit is what two ways of rounding allow.
    distance = abs(computed - float(number))
    if name == "params":
        return distance < digit
    return distance <= max(digit, FLOPS_TOLERANCE * abs(float(number))) + 1e-12
