"""A declared study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ablate.records.base import DESCRIPTIVE, INLINE
from ablate.records.data import Data
from ablate.records.recipe import LENGTHS, Recipe
from ablate.records.sections import (
    Across,
    Claim,
    Criterion,
    Design,
    Diagnostics,
    Factors,
    Keep,
    Limit,
    Network,
    Reported,
    Resources,
    Scheduler,
    Seeds,
    Strategy,
    Tune,
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

    name: str = field(metadata={DESCRIPTIVE: True})
    # Whether the document gives the name; otherwise the name is that of the file.
    named: bool = field(metadata={DESCRIPTIVE: True})
    # The YAML text.
    document: str = field(metadata={DESCRIPTIVE: True})
    claim: Claim = field(metadata={INLINE: True, DESCRIPTIVE: True})
    network: Network = field(metadata={INLINE: True})
    factors: Factors = field(metadata={INLINE: True})
    # Which cells are trained; a search does not read it.
    design: Design
    seeds: Seeds = field(metadata={INLINE: True})
    data: Data
    recipe: Recipe
    criterion: Criterion = field(metadata={INLINE: True})
    resources: Resources = field(metadata={DESCRIPTIVE: True})
    scheduler: Scheduler
    # Bounds on the cost of a cell.
    limits: tuple[Limit, ...] = ()
    # How a search proposes cells; None: the space has a design.
    strategy: Strategy | None = None
    # Hyperparameters that each row has at its own best setting; None: there are none.
    tune: Tune | None = None
    # The size of this study, and the other sizes; None: there are no sizes.
    across: Across | None = None
    # Where its results are from, if they were trained elsewhere.
    reported: Reported | None = field(default=None, metadata={DESCRIPTIVE: True})
    # Each variant also gets the baseline in the width at which this cost is equal.
    control: Literal["", "iso-params", "iso-flops"] = ""
    diagnostics: Diagnostics = field(
        default_factory=Diagnostics, metadata={DESCRIPTIVE: True}
    )
    # The document sets no warm-up: each cell has that of the preset, cut to leave at
    # least one epoch after it.
    warmup_fits: bool = field(default=False, metadata={DESCRIPTIVE: True})
    keep: Keep = field(default="last", metadata={DESCRIPTIVE: True})
    # What factors, and levels as `ffn.kernel:none`, are called in tables and figures.
    labels: Mapping[str, str] = field(
        default_factory=dict, metadata={DESCRIPTIVE: True}
    )
    # Files of the user's parts, as the command that read the space named them. They are
    # for messages; nothing loads them from here.
    parts: tuple[str, ...] = field(default=(), metadata={DESCRIPTIVE: True})

    @property
    def images_seen(self) -> int | None:
        """The images that a training of row 0 sees; None if that is not known."""
        if self.network.trainer or not self.data.images:
            return None
        lengths: dict[str, Any] = {
            name: level
            for name in LENGTHS
            if (level := self.factors.baseline.get(f"recipe.{name}")) is not None
        }
        recipe = replace(self.recipe, **lengths).in_epochs(self.data.images)
        return recipe.epochs * self.data.images

    @property
    def studies(self) -> list[str]:
        """The names of the studies of all sizes; its own, if it has no sizes."""
        return self.across.studies if self.across else [self.name]

    @property
    def confirmation_seeds(self) -> tuple[int, ...]:
        """The fresh seeds on which a search confirms its best cells."""
        if self.strategy is None:
            return ()
        return confirmation_seeds(self.seeds.numbers, self.strategy.confirm)
