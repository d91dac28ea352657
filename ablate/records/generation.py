"""A study as one of the generations that compare the same rows.

A study is one declaration and its results. If its file changes after results could be
seen, the next run makes the next generation. All studies of a store that compare the
same rows, or use the same trials of row 0, form a *lineage*. The levels of a lineage
add up to 5 %, so that at most 5 % of lineages without effects ever show a false
verdict, however often a study is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ablate.records.sections import Primary
from ablate.statistics import LEVEL

# The level of a study whose comparisons are new. Each later study of its lineage has
# half of what is left: 0.5 %, 0.25 %, ... Chosen by power (docs/statistics.md). A study
# with final seeds has all of it, and leaves nothing.
FIRST_LEVEL = 0.04


class Standing(StrEnum):
    """What a study may say of a row, by what was known when it was declared."""

    # The study tests the row.
    TESTED = "tested"
    # An earlier study declared the same trials: its verdict counts.
    SHOWN = "shown"
    # The results of the row were known, and may be the reason to compare it.
    KNOWN = "known"
    # Seeds that were trained are left out.
    PARTIAL = "seeds left out"
    # A study of the lineage promised that its seeds are final.
    FINAL = "after final seeds"


@dataclass(frozen=True)
class RowStanding:
    """The standing of a row, and the earlier studies that compare the same.

    Attributes:
        earlier: the number of each study in the store and the row there, the latest
            first. If the row is SHOWN, the first one has its verdict.
    """

    standing: Standing = Standing.TESTED
    earlier: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Generation:
    """The place of a study in its lineage.

    Attributes:
        number: the number of the generation among the studies of its name, from 1.
        level: the probability of a false verdict that the study may use.
        left_out: comparisons of earlier studies that the study leaves out although
            their results may be the reason for those that it has. They count in its p
            values.
        lineage: the number in the store of the first study of the lineage; None: the
            study begins one.
        rows: the standing of each row; a row that is missing is tested.
    """

    number: int = 1
    level: float = FIRST_LEVEL
    left_out: int = 0
    lineage: int | None = None
    rows: Mapping[int, RowStanding] = field(default_factory=dict)

    @property
    def final(self) -> bool:
        """Whether its seeds are final: it has the whole level of its lineage."""
        return self.level >= LEVEL

    @property
    def is_first(self) -> bool:
        """Whether no study of the lineage came before."""
        return self.level >= FIRST_LEVEL

    @property
    def next_level(self) -> float:
        """The level of the next study of the lineage."""
        if self.is_first:
            return (LEVEL - self.level) / 2
        return self.level / 2

    def standing(self, row: int) -> Standing:
        """Returns the standing of a row."""
        return self.rows.get(row, RowStanding()).standing

    def primary(self, declared: tuple[Primary, ...]) -> tuple[Primary, ...]:
        """Returns the primary comparisons: those that were named before any result."""
        return declared if self.is_first else ()


def next_level(spent: float) -> float:
    """Returns the level of the next study of a lineage.

    Args:
        spent: the levels of its studies so far, added up; 0: there is none.
    """
    if not spent:
        return FIRST_LEVEL
    # Levels are decimal fractions, and their sums are not exact.
    return round(max(0.0, LEVEL - spent) / 2, 12)


# What names a study.
STUDY_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*$"
# What names a stored study: that of its file, and the number of a generation.
STORED_NAME = r"\w[\w.-]*(/\w[\w.-]*)*(@\d+)?"
# The longest name: the size of the column in the store, which not every database enforces,
# less the number behind the name of an earlier generation.
LONGEST_NAME = 190


def base_name(name: str) -> str:
    """Returns the name of a study without the number of its generation."""
    # No study has the sign in a name of its own (`space.load.study_name`).
    return name.partition("@")[0]


def generation_name(name: str, number: int) -> str:
    """Returns the name of an earlier generation of a study, as `mine@1`."""
    return f"{name}@{number}"
