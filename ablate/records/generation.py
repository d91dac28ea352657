"""What was declared before a study, as far as it counts for its verdicts.

A study is one declaration and its results. If its file changes after results could be
seen, the next run makes the next generation. The studies of a store whose rows are
compared on the same seeds form a group: in at most 5 % of groups without effects is
there ever a false verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """What a study may say of a row, by what was known when it was declared."""

    # The study tests the row.
    TESTED = "tested"
    # The results of the row were known, and may be the reason to compare it.
    KNOWN = "known"
    # Seeds that were trained are left out.
    PARTIAL = "seeds left out"


@dataclass(frozen=True)
class Comparison:
    """A row of a study, as its comparison with row 0 was declared.

    Attributes:
        standing: of row 0: whether its results were known.
        key: what identifies its trials beside their seeds.
        repeats: how many earlier groups test the same comparison on other seeds.
    """

    standing: Standing = Standing.TESTED
    key: str = ""
    repeats: int = 0


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
