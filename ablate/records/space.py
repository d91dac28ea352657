"""A declared study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ablate.records.data import Data
from ablate.records.recipe import Recipe
from ablate.records.sections import (
    Claim,
    Criterion,
    Design,
    Diagnostics,
    Factors,
    Keep,
    Limit,
    Network,
    Resources,
    Scheduler,
    Seeds,
    Strategy,
)


def confirmation_seeds(seeds: Sequence[int], number: int | None) -> tuple[int, ...]:
    """Returns the fresh seeds on which a search confirms its best cells.

    They are the numbers after the seeds that the search trains.

    Args:
        number: how many; None: the search confirms none.
    """
    if not number:
        return ()
    first = max(seeds, default=-1) + 1
    return tuple(range(first, first + number))


@dataclass(frozen=True)
class Space:
    """A declared study, in sections. Every name is known, and every level is allowed."""

    name: str
    # Whether the document gives the name; otherwise the name is that of the file.
    named: bool
    # The YAML text.
    document: str
    claim: Claim
    network: Network
    factors: Factors
    # Which cells are trained; a search does not read it.
    design: Design
    seeds: Seeds
    data: Data
    recipe: Recipe
    criterion: Criterion
    resources: Resources
    scheduler: Scheduler
    # Bounds on the cost of a cell.
    limits: tuple[Limit, ...] = ()
    # How a search proposes cells; None: the space has a design.
    strategy: Strategy | None = None
    # Each variant also gets the baseline in the width at which this cost is equal.
    control: Literal["", "iso-params", "iso-flops"] = ""
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    # The document sets no warm-up: each cell has that of the preset, cut to leave at
    # least one epoch after it.
    warmup_fits: bool = False
    keep: Keep = "last"
    # What factors, and levels as `ffn.kernel:none`, are called in tables and figures.
    labels: Mapping[str, str] = field(default_factory=dict)
    # Files of the user's parts, as the command that read the space named them. They are
    # for messages; nothing loads them from here.
    parts: tuple[str, ...] = ()

    @property
    def confirmation_seeds(self) -> tuple[int, ...]:
        """The fresh seeds on which a search confirms its best cells."""
        if self.strategy is None:
            return ()
        return confirmation_seeds(self.seeds.numbers, self.strategy.confirm)
